"""NeMo: its configurations, tarred sets and sources."""
