"""Plan: index, batch policy, seed and epoch give every batch of an epoch."""
