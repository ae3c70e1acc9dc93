"""Diagnosis: checks of data, reports of plans, profiles of loading."""
