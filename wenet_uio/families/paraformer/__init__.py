"""Paraformer: all tokens of an utterance at once."""
