"""Storage: local paths and remote stores, the cache, the prefetch process."""
