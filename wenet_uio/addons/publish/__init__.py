"""What shows and shares models: hub, model cards, reports of runs, trackers, ablations."""
