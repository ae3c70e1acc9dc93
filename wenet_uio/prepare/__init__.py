"""Data preparation: lists, shards, statistics, new recipes."""
