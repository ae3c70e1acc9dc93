"""Unified IO: data lists to batches. This is the public face of the data layer.

`build_loader` gives the batches of a list; `dataset.py` shows the whole flow. The names below are
loaded when they are used: packing and planning do not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wenet_uio.base.imports import loads_when_used

if TYPE_CHECKING:
    from wenet_uio.dataset.corpus.base import Corpus
    from wenet_uio.dataset.dataset import build_chain, build_loader
    from wenet_uio.dataset.formats.errors import ListError
    from wenet_uio.dataset.ledger import Ledger
    from wenet_uio.dataset.loader import Loader
    from wenet_uio.dataset.open import open_corpus
    from wenet_uio.dataset.options import LoaderOptions
    from wenet_uio.dataset.types import Batch, Example, SampleRef, SkipSample

__all__ = [
    "Batch",
    "Corpus",
    "Example",
    "Ledger",
    "ListError",
    "Loader",
    "LoaderOptions",
    "SampleRef",
    "SkipSample",
    "build_chain",
    "build_loader",
    "open_corpus",
]

__getattr__ = loads_when_used(
    __name__,
    {
        **dict.fromkeys(("Batch", "Example", "SampleRef", "SkipSample"), "types"),
        **dict.fromkeys(("build_chain", "build_loader"), "dataset"),
        "Corpus": "corpus.base",
        "Ledger": "ledger",
        "ListError": "formats.data_list",
        "Loader": "loader",
        "LoaderOptions": "options",
        "open_corpus": "open",
    },
)


def __dir__() -> list[str]:
    return __all__
