"""Model families beside the core: a folder each, loaded by the name that a train.yaml gives under `model`."""
