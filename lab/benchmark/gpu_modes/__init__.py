"""The modes of gpu.py. Each module named after a mode has `run(report)`; they share report, recipes
and runs.
"""
