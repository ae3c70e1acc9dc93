"""Tarred sets of NeMo: which entry goes into which tar, the tars, metadata.yaml."""
