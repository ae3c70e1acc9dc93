"""Model families: a folder each, loaded by the name that a train.yaml gives under `model`."""
