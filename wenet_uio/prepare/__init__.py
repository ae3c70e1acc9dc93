"""Data preparation: corpora become data lists, shards and statistics; see README.md."""
