"""Whisper: a decoder that starts with a prompt of language and task."""
