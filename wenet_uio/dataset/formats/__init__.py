"""Formats: data lists, tar files, and the layouts of other tools."""
