"""Diagnose data before training: check samples, report plans, profile loading."""
