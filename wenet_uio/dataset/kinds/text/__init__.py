"""Text without audio, and pairs of texts."""
