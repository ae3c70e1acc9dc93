"""Corpus: a data list as shards of indexed samples."""
