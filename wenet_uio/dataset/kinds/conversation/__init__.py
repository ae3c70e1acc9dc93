"""Conversations: turns of text and audio."""
