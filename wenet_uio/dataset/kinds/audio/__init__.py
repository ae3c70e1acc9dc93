"""Recorded audio with a text."""
