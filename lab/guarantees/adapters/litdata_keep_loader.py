"""LitData with `drop_last=False`, which its documentation has for validation."""

from litdata_loader import Loader as Dropping


class Loader(Dropping):
    """StreamingDataset that keeps the tail of the epoch."""

    DROP_LAST = False
