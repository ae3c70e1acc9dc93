"""The types of a sample on its way from the plan to training: SampleRef -> Utterance -> Example ->
Batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch  # planning and packing run without torch


class SampleRef(NamedTuple):
    """One planned sample: row `row` of shard `shard`, played at `speed` (1.1 is 10 % faster)."""

    shard: int
    row: int
    speed: float = 1.0


AUDIO_TURN = -2
"""Label that stands for an audio turn among the labels of a conversation."""


class AudioTurn(NamedTuple):
    """Encoded audio of one turn of a conversation."""

    audio: bytes | str
    """Bytes, or the path of a file."""
    start: float = 0.0
    """Seconds."""
    end: float | None = None
    """Seconds; None reads to the end of the audio."""
    seconds_of_token: float = 0.08
    """Seconds of audio that count as one token."""


class ToSpeak(NamedTuple):
    """A text without audio that an operator of the user speaks, so that it is learned as audio."""

    text: str
    speaker: str | None = None
    """The same in every reading of one epoch; None if the source names no speakers."""
    seconds: float = 0.0
    """Length that the plan counts. Longer speech is left out."""


@dataclass(frozen=True)
class Utterance:
    """A sample as stored. Each kind of sample is a subclass with what belongs to it."""

    key: str
    text: str
    extra: dict[str, Any] = field(default_factory=dict, kw_only=True)
    """All other fields of the list, and other members of the tar, that belong to the sample."""


@dataclass(frozen=True)
class AudioUtterance(Utterance):
    """Encoded audio, or stored features, and its text."""

    audio: bytes | memoryview | str
    """Encoded bytes (shard mode), or the path of a file (raw mode)."""
    start: float = 0.0
    """Seconds from the start of the audio; reading starts here."""
    end: float | None = None
    """Seconds from the start of the audio; reading stops here. None reads to the end of the
    audio."""


@dataclass(frozen=True)
class TextUtterance(Utterance):
    """A text without audio."""


@dataclass(frozen=True)
class PairUtterance(TextUtterance):
    """A pair of texts; `text` is the second."""

    source: str
    """The first text."""


@dataclass(frozen=True)
class ConversationUtterance(Utterance):
    """A conversation of texts and audio."""

    turns: tuple[str | AudioTurn, ...]


@dataclass(frozen=True)
class UtteranceToSpeak(Utterance):
    """A text that an operator is to speak."""

    to_speak: str
    """What is spoken; `text` is what is learned."""
    speakers: Sequence[str] = ()
    """Speakers, of which one is drawn for each epoch."""


@dataclass(frozen=True)
class Example:
    """A sample on its way through the chain; operators return changed copies.

    This class is a sample with recorded audio; other kinds are subclasses.
    """

    key: str
    text: str
    waveform: torch.Tensor | None
    """(samples,) float32 on the scale of int16. It is int16 if the audio is stored with 16 bits
    and the config names no operators of the user. None without audio, and after the features are
    computed."""
    sample_rate: int
    """Hz; of stored features FRAME_RATE."""
    random: int
    """63-bit seed of all random draws for this sample. It depends on (seed, epoch, key) only."""
    speed: float = 1.0
    feats: torch.Tensor | None = None
    """(frames, bins) float32."""
    view: int = 0
    """Number of the augmented view that `feats` is, or becomes."""
    other_feats: torch.Tensor | None = None
    """(frames, bins) float32: a second augmented view, if training compares two."""
    tokens: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    deferred: DeferredExample | None = None
    """Set instead of `feats` if the accelerator computes the features."""
    unreadable: tuple[Skipped, ...] = ()
    """Noise that was drawn for the sample, or for the turns of a conversation, and cannot be read."""

    @property
    def to_speak(self) -> ToSpeak | None:
        """What an operator of the user speaks; None: the sample is not spoken."""
        return None


@dataclass(frozen=True)
class FeatureExample(Example):
    """Stored features in place of audio."""


@dataclass(frozen=True)
class TextExample(Example):
    """Text without audio."""


@dataclass(frozen=True)
class PairExample(TextExample):
    """A pair of texts; `text` and `labels` are the second."""

    source: str = field(kw_only=True)
    """The first text."""
    source_labels: tuple[int, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class ConversationExample(Example):
    """A conversation. In `labels`, AUDIO_TURN stands for each audio turn."""

    turns: tuple[Example, ...] = field(kw_only=True)
    """The audio turns, with features."""


@dataclass(frozen=True)
class ExampleToSpeak(Example):
    """A text that becomes audio when an operator of the user speaks it."""

    speech: ToSpeak = field(kw_only=True)

    @property
    def to_speak(self) -> ToSpeak:
        """What is spoken."""
        return self.speech


def waveform_of(example: Example) -> torch.Tensor:
    """Return the waveform of an example.

    Raises:
        ValueError: the example is text without audio, or its features are already computed.
    """
    if example.waveform is None:
        why = "it is text without audio"
        if example.to_speak:
            why = "no operator after `decode` spoke its text"
        raise ValueError(f"{example.key}: no waveform; {why}, or its features are already computed")
    return example.waveform


def feats_of(example: Example) -> torch.Tensor:
    """Return the features of an example.

    Raises:
        ValueError: the features are not computed yet, or the accelerator computes them.
    """
    if example.feats is None:
        raise ValueError(
            f"{example.key}: no features; compute them before this operator, and in the worker"
        )
    return example.feats


Operator = Callable[[Example], Example]
"""One step of the chain."""


@dataclass(frozen=True)
class Skipped:
    """A sample left out while reading, and the reason."""

    key: str
    reason: str
    detail: str = ""
    filtered: bool = False
    """True: a filter of the user rejects the sample. False: bad data, which counts against
    max_bad_ratio."""


class SkipSample(Exception):  # noqa: N818 - a decision of an operator, not an error
    """Raise this in an operator to leave a sample out, see `Skipped`; other exceptions are bugs and
    stop the run.
    """

    def __init__(self, reason: str, detail: str = "", *, filtered: bool = False) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.filtered = reason, detail, filtered


class BatchOperator(ABC):
    """A step of the chain that processes the examples of a batch together, which takes fewer calls.

    An example becomes the same in every batch, up to rounding.
    """

    @abstractmethod
    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        """Return the changed copy of each example, or why it is left out."""

    def __call__(self, example: Example) -> Example:
        """Process one example.

        Raises:
            SkipSample: the example is left out.
        """
        (changed,) = self.apply_to_all([example])
        if isinstance(changed, SkipSample):
            raise changed
        return changed


class DeferredExample(Protocol):
    """Replaces the features of an Example that the accelerator will compute; made by
    `chain.deferred.Defer`.
    """

    @property
    def frames(self) -> int:
        """Number of feature frames of the example."""
        ...


class DeferredFeatures(Protocol):
    """Replaces the features of a Batch that the accelerator will compute; see
    `chain.deferred.PaddedWaveforms`.
    """

    @property
    def dim(self) -> int:
        """Features per frame."""
        ...

    @property
    def waveforms(self) -> torch.Tensor:
        """(B, samples), padded with 0."""
        ...

    @property
    def lengths(self) -> torch.Tensor:
        """(B,) int64, samples."""
        ...

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by name; the first dimension of each is B."""
        ...

    def with_tensors(self, tensors: Mapping[str, torch.Tensor | None]) -> DeferredFeatures:
        """Return a copy with other tensors."""
        ...

    def compute(self, feats_lengths: torch.Tensor, frames: int) -> tuple[torch.Tensor, ...]:
        """Return features (B, frames, dim) of each view, on the device of the tensors."""
        ...


@dataclass
class Batch:
    """Padded examples of one micro-batch, sorted by length, longest first."""

    keys: tuple[str, ...]
    feats: torch.Tensor
    """(B, T, F) float32, padded with 0. T is 0 for text without audio. F is 0 until `to` computes
    deferred features. Of conversations (A, T, F): the audio turns of the first conversation, then
    those of the second, and so on."""
    feats_lengths: torch.Tensor
    """(B,) int64, frames; of conversations (A,)."""
    target: torch.Tensor
    """(B, U) int64, padded with -1. In conversations AUDIO_TURN stands for an audio turn: the k-th
    of them, row by row, is row k of `feats`."""
    target_lengths: torch.Tensor
    """(B,) int64."""
    seconds: float = 0.0
    """Seconds of audio in the batch; 0 for conversations."""
    skipped: tuple[Skipped, ...] = ()
    """Samples that were planned for this batch and left out while reading."""
    planned: int = 0
    """Number of samples planned for this batch: those in the batch and those skipped."""
    index: int = -1
    """t: number of the batch in the plan of the epoch."""
    closes_step: bool = True
    """A batch above the bound is split into several micro-batches of one step; False for all but
    the last of them."""
    texts: tuple[str, ...] = ()
    """Transcripts as stored, in the order of `keys`."""
    extra: tuple[dict[str, Any], ...] = ()
    """Other fields of each sample: those of its list, and the tags of its source."""
    other_feats: torch.Tensor | None = None
    """(B, T, F) float32: a second augmented view of each utterance; None: there is one view."""
    deferred: DeferredFeatures | None = None
    """Waveforms from which `to` computes the features on its device; None if `feats` holds them."""
    unreadable: tuple[Skipped, ...] = ()
    """Noise that was drawn for the samples and cannot be read; other noise took its place."""

    TENSORS: ClassVar[tuple[str, ...]] = (
        *("feats", "other_feats", "feats_lengths", "target", "target_lengths"),
    )
    """Fields that are tensors, or None."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def text_only(self) -> bool:
        """True for a batch of text without audio."""
        return bool(self.keys) and self.feats.size(1) == 0

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on `device`, copied without blocking from pinned memory; deferred
        features are computed there.
        """
        return self.copied_to(device).with_features()

    def copied_to(self, device: torch.device | str) -> Batch:
        """Return the batch on `device`, copied at once and without blocking from pinned memory."""
        return self._copy_tensors(lambda tensor: tensor.to(device, non_blocking=True))

    def used_on(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory of the tensors until `stream` has used them, which is not the stream that
        made them.
        """
        for tensor in self._tensors().values():
            tensor.record_stream(stream)

    def with_features(self) -> Batch:
        """Return the batch with features in place of deferred ones, computed where the batch is."""
        if self.deferred is None:
            return self

        if not len(self):  # all utterances were removed after padding
            no_feats = self.feats.new_zeros(0, 0, self.deferred.dim)
            return replace(self, feats=no_feats, other_feats=None, deferred=None)

        # One tensor of features, or two with two views of each utterance.
        feats, *other_views = self.deferred.compute(self.feats_lengths, self.feats.size(1))
        other_feats = other_views[0] if other_views else None
        return replace(self, feats=feats, other_feats=other_feats, deferred=None)

    def rows(self, rows: slice) -> Batch:
        """Return a batch of some of the utterances, padded to the longest of them."""
        tensors = {name: tensor[rows] for name, tensor in self._tensors().items()}
        for name in {"feats", "other_feats", "target", "source"} & tensors.keys():
            lengths = tensors[f"{name.removeprefix('other_')}_lengths"]
            tensors[name] = tensors[name][:, : int(lengths.max())]

        columns = {name: getattr(self, name)[rows] for name in ("keys", "texts", "extra")}
        share_of_frames = int(tensors["feats_lengths"].sum()) / max(
            int(self.feats_lengths.sum()), 1
        )
        return replace(
            self._replace_tensors(tensors),
            seconds=self.seconds * share_of_frames,
            skipped=(),
            planned=len(columns["keys"]),
            **columns,
        )

    def pin_memory(self) -> Batch:
        """Return the batch in pinned memory; the pinning thread of the DataLoader calls this."""
        return self._copy_tensors(lambda tensor: tensor.pin_memory())

    def __reduce__(self) -> tuple[Callable, tuple]:
        """Pickle each shared buffer once, so that a batch crosses processes as few file
        descriptors.
        """
        from wenet_uio.dataset.batch_memory import to_buffers  # imports torch

        tensors = self._tensors()
        values = self._replace_tensors(dict.fromkeys(tensors)).__dict__
        return _unpickle_batch, (type(self), values, *to_buffers(tensors))

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by name; those of deferred features are `deferred.NAME`."""
        values = {name: getattr(self, name) for name in self.TENSORS}
        tensors = {name: value for name, value in values.items() if value is not None}
        if self.deferred is not None:
            tensors.update(
                (f"deferred.{name}", tensor) for name, tensor in self.deferred.tensors().items()
            )

        return tensors

    def _replace_tensors(self, tensors: Mapping[str, torch.Tensor | None]) -> Batch:
        """Return the batch with other tensors, which have the names of `_tensors`."""
        changes: dict[str, Any] = {
            name: tensor for name, tensor in tensors.items() if "." not in name
        }
        if self.deferred is not None:
            deferred_tensors = {
                name.partition(".")[2]: tensor for name, tensor in tensors.items() if "." in name
            }
            changes["deferred"] = self.deferred.with_tensors(deferred_tensors)

        return replace(self, **changes)

    def _copy_tensors(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        from wenet_uio.dataset.batch_memory import copied  # imports torch

        return self._replace_tensors(copied(self._tensors(), copy))


@dataclass
class PairBatch(Batch):
    """Pairs of texts; `target` holds the second texts."""

    source: torch.Tensor = field(kw_only=True)
    """(B, S) int64, padded with -1: labels of the first texts."""
    source_lengths: torch.Tensor = field(kw_only=True)
    """(B,) int64."""

    TENSORS: ClassVar[tuple[str, ...]] = (*Batch.TENSORS, "source", "source_lengths")


@dataclass
class CollatedBatch(Batch):
    """A batch whose examples a function of the user collated; it has no tensors of its own."""

    collated: Any = field(kw_only=True)
    """What the function made; the loader yields it."""


def _unpickle_batch(kind: type[Batch], values: dict[str, Any], *in_buffers: Any) -> Batch:
    from wenet_uio.dataset.batch_memory import from_buffers  # imports torch

    return kind(**values)._replace_tensors(from_buffers(*in_buffers))
