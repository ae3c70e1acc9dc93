"""Kinds of samples: how the samples of one source become examples, and through which operators
they go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wenet_uio.audio.decoders import Channel
from wenet_uio.config.filters import FilterConf
from wenet_uio.config.named_code import named_object
from wenet_uio.dataset.chain.tokens import Filter
from wenet_uio.dataset.corpus.base import Corpus, Kind
from wenet_uio.dataset.corpus.index import Rows
from wenet_uio.dataset.types import Example, Operator, SampleRef

KINDS: dict[Kind, str] = {
    "audio": "wenet_uio.dataset.kinds.audio:RecordedAudio",
    "features": "wenet_uio.dataset.kinds.audio:RecordedAudio",
    "text": "wenet_uio.dataset.kinds.text:Text",
    "pair": "wenet_uio.dataset.kinds.text:Pair",
    "conversation": "wenet_uio.dataset.kinds.conversation:Conversations",
    "to_speak": "wenet_uio.dataset.kinds.to_speak:TextToSpeak",
}
"""{kind of a corpus: `module:name` of its SampleKind}."""


class Chains(NamedTuple):
    """The operators for each kind of sample."""

    audio: tuple[Operator, ...] = ()
    features: tuple[Operator, ...] = ()
    """For stored features."""
    text: tuple[Operator, ...] = ()
    """For texts without audio."""

    def with_filter(self, filter_conf: FilterConf) -> Chains:
        """Return the same operators with other bounds on tokens."""

        def changed(operator: Operator) -> Operator:
            return Filter(filter_conf) if isinstance(operator, Filter) else operator

        return Chains(*(tuple(map(changed, chain)) for chain in self))


class Reading(NamedTuple):
    """What differs between the samples of a source."""

    ref: SampleRef
    random: int
    """63-bit seed of all random draws."""
    rows: Rows
    """Index of its shard."""

    @property
    def indexed_seconds(self) -> float:
        """Length of the audio in the index; only for samples with audio."""
        row = self.ref.row
        return int(self.rows.num_samples[row]) / int(self.rows.sample_rate[row])


@dataclass(frozen=True)
class SampleKind(ABC):
    """How the samples of one source are read. The reader makes one for each source."""

    chains: Chains = field(default_factory=Chains)
    channel: Channel = 0
    """Channel of the config."""
    feature_dim: int = 80
    """Bins of the features of the config."""
    keep_int16: bool = False
    """Give the chain samples stored with 16 bits as int16, not as float32."""

    @abstractmethod
    def example(self, utterance: Any, reading: Reading) -> Example:
        """Return the example of an utterance; reads its audio, if there is any.

        Raises:
            SkipSample: the sample is bad.
            AudioError, ListError, OSError: it cannot be read.
        """

    @abstractmethod
    def begin_chain(self, example: Any) -> tuple[Example, Sequence[Operator]]:
        """Return an example, and the operators that it has still to go through.

        Raises:
            SkipSample: the example is left out.
        """


def kind_of(corpus: Corpus) -> type[SampleKind]:
    """Return how the samples of a list are read: all of them are of one kind."""
    (name,) = corpus.kinds
    return named_object(KINDS[name], f"{corpus.data_list}: samples of the kind {name}")
