"""Hybrid models: an encoder with CTC and an attention decoder, trained together."""
