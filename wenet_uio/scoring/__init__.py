"""Score recognised text: error rates, confidence intervals, comparison of systems, pages of
errors.
"""
