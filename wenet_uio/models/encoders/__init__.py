"""Encoders: a folder each, with its record, its section of the yaml and its modules."""
