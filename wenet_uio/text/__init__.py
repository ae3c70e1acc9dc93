"""Tokenizers, units files, Kaldi's text tables, and normalisation of transcripts."""
