"""Unified IO: data lists to batches. `dataset.py` shows the whole flow."""
