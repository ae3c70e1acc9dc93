"""Export of trained models to TorchScript, and the check of every export against its checkpoint."""
