"""Tokenizers (text to labels and back), units files, Kaldi text tables, and normalisation of
transcripts.
"""
