"""Features that are stored in place of audio."""
