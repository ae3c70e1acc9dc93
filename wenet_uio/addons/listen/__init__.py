"""Listening with a trained model: recordings of any length, live streams, alignment."""
