"""Scoring: error rates, confidence intervals, pages of errors."""
