"""Kinds of samples: how each is listed, measured, read and counted."""
