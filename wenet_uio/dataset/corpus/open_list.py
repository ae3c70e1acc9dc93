"""A raw list or a shard list as a source of samples, and as a corpus."""

from __future__ import annotations

import logging
from typing import NamedTuple

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.indexing import index_of_file, open_list_file
from wenet_uio.dataset.corpus.raw_corpus import RawCorpus
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.storage import objects


class ListSource(NamedTuple):
    """A raw list or a shard list."""

    data_list: str
    data_type: DataType
    layout: Layout = DEFAULT_LAYOUT
    """How names in tars and manifests of other tools are read."""

    def lists(self) -> list[ListSource]:
        """Return this list."""
        return [self]

    def open(self) -> Corpus:
        """Open the list, see `open_list`."""
        return open_list(*self)


log = logging.getLogger(__name__)


def open_list(data_list: str, data_type: DataType, layout: Layout = DEFAULT_LAYOUT) -> Corpus:
    """Open a raw or shard list; index the list first if it has no index or has changed.

    Args:
        data_list: path of the list.
        data_type: type of the list.
        layout: how names in tars and manifests of other tools are read; the default recognises most
            by itself.

    Raises:
        ListError: the list is missing, of the other type, or holds no usable utterance.
        OSError, ValueError: audio is remote and the cache cannot be used.
    """
    lines = open_list_file(data_list, data_type)
    index = index_of_file(lines, data_type, layout)
    if data_type == "raw":
        corpus: Corpus = RawCorpus(lines, index, layout)
    else:
        lines.close()
        corpus = ShardCorpus(data_list, index, layout)

    if corpus.is_remote:
        objects.check_cache()
    if not corpus.num_samples:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in corpus.bad[:3])
        raise ListError(f"{data_list}: no usable utterance" + (f" ({reasons})" if reasons else ""))

    log.debug("%s: %d utterances, and %d bad", data_list, corpus.num_samples, len(corpus.bad))
    return corpus
