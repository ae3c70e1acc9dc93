"""What a kind of sample has to say: how its utterances become examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wenet_uio.audio.decoders import Channel
from wenet_uio.dataset.corpus.index import Rows
from wenet_uio.dataset.types import Example, Operator, SampleRef


@dataclass(frozen=True)
class Reading:
    """How one sample is read."""

    ref: SampleRef
    random: int
    """63-bit seed of all random draws."""
    rows: Rows
    """Index of its shard."""
    channel: Channel
    """Channel of the config."""
    feature_dim: int
    """Bins of the features of the config."""
    keep_int16: bool
    """Give the chain samples stored with 16 bits as int16, not as float32."""
    audio_chain: Sequence[Operator]
    """Operators for samples with audio."""

    @property
    def indexed_seconds(self) -> float:
        """Length of the audio in the index; only for samples with audio."""
        row = self.ref.row
        return int(self.rows.num_samples[row]) / int(self.rows.sample_rate[row])


@dataclass(frozen=True)
class Kind:
    """A kind of sample, found by the type of its utterances."""

    example: Callable[[Any, Reading], Example]
    """`example(utterance, reading)` reads the audio, if there is any, and returns the example.

    It raises SkipSample for a bad sample, and AudioError, ListError or OSError for one that cannot
    be read.
    """
