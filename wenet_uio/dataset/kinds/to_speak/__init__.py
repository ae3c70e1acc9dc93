"""Texts that an operator of the user speaks."""
