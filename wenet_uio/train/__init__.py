"""From a model and a loader to a trained model. Read trainer.py first."""
