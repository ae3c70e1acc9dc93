"""Frames with chunks learn from those with full context, by a contrastive loss."""
