"""Text to labels and back, vocabularies, and error rates."""
