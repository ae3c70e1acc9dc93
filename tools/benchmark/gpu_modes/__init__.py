"""The modes of gpu.py: each module named after a mode has `run(report)`. They share report.py, recipes.py and runs.py."""
