"""Reading text without audio, and pairs of texts."""

from __future__ import annotations

from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.kinds.kind import Reading
from wenet_uio.dataset.types import PairExample, PairUtterance, TextExample, TextUtterance


def text_example(utterance: TextUtterance, reading: Reading) -> TextExample:
    """Return the example of a text."""
    return TextExample(
        utterance.key, utterance.text, None, TEXT_ONLY, reading.random, extra=utterance.extra
    )


def pair_example(utterance: PairUtterance, reading: Reading) -> PairExample:
    """Return the example of a pair of texts."""
    return PairExample(
        utterance.key,
        utterance.text,
        None,
        TEXT_ONLY,
        reading.random,
        extra=utterance.extra,
        source=utterance.source,
    )
