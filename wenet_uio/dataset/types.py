"""The types that carry the flow: SampleRef -> Utterance -> Example -> Batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch  # the plan and the tools that pack do without it

    from wenet_uio.dataset.chain.deferred import Deferred, DeferredFeatures


class SampleRef(NamedTuple):
    """One planned sample: row `row` of shard `shard`, played at `speed`."""

    shard: int
    row: int
    speed: float = 1.0


@dataclass(frozen=True)
class Utterance:
    """A sample as stored: encoded audio and its text."""

    key: str
    audio: bytes | memoryview | str | None
    """Encoded bytes (shard mode) or the path of a file (raw mode); None of what is text alone."""
    text: str
    start: float = 0.0
    """Seconds into the audio."""
    end: float | None = None
    """Seconds; None reads to the end."""
    source: str | None = None
    """Of a pair of texts, the one that `text` answers to."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Every further field or member that came with the sample."""


@dataclass(frozen=True)
class Example:
    """A sample on its way through the chain; operators return changed copies."""

    key: str
    text: str
    waveform: torch.Tensor | None
    """(samples,) float32 on the scale of int16; None once features are computed, and of text alone. Where features are
    left to the accelerator and no operator of the user's takes part, int16 where it is so stored."""
    sample_rate: int
    """Hz."""
    random: int
    """63-bit seed of everything drawn for this sample: a function of (seed, epoch, key) alone."""
    speed: float = 1.0
    feats: torch.Tensor | None = None
    """(frames, bins) float32."""
    tokens: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    source: str | None = None
    source_labels: tuple[int, ...] = ()
    """Of a pair of texts, those of the first."""
    extra: dict[str, Any] = field(default_factory=dict)
    deferred: Deferred | None = None
    """In place of features: what the accelerator is to make of the waveform."""


Operator = Callable[[Example], Example]
"""One step of the chain."""


@dataclass(frozen=True)
class Skipped:
    """A sample left out while reading, and why."""

    key: str
    reason: str
    detail: str = ""
    filtered: bool = False
    """True: left out by the user's filters; False: bad data, which counts against max_bad_ratio."""


class SkipSample(Exception):  # noqa: N818 - not an error: it carries a decision
    """Raised by an operator to leave a sample out; any other exception is a bug and stops the run."""

    def __init__(self, reason: str, detail: str = "", *, filtered: bool = False) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.filtered = reason, detail, filtered


@dataclass
class Batch:
    """Padded examples of one micro-batch, longest features first."""

    keys: tuple[str, ...]
    feats: torch.Tensor
    """(B, T, F) float32, padded with 0; T is 0 for a batch of text alone, F is 0 while features are deferred."""
    feats_lengths: torch.Tensor
    """(B,) int64, frames."""
    target: torch.Tensor
    """(B, U) int64, padded with -1."""
    target_lengths: torch.Tensor
    """(B,) int64."""
    seconds: float = 0.0
    """Audio in the batch."""
    skipped: tuple[Skipped, ...] = ()
    """Samples planned for this batch that turned out bad."""
    planned: int = 0
    """Samples planned for this batch: those in it and those skipped."""
    index: int = -1
    """t: the batch's place in the epoch's plan."""
    closes_step: bool = True
    """False for all but the last micro-batch of one step (a batch split to hold its bound)."""
    texts: tuple[str, ...] = ()
    """Transcripts as stored, beside `keys`."""
    extra: tuple[dict[str, Any], ...] = ()
    """What else came with each sample: fields of its list, tags of its source."""
    source: torch.Tensor | None = None
    """(B, S) int64, padded with -1: of pairs of texts, the first."""
    source_lengths: torch.Tensor | None = None
    """(B,) int64."""
    deferred: DeferredFeatures | None = None
    """Waveforms, where features are left to the accelerator: `to` computes them."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def text_only(self) -> bool:
        return bool(self.keys) and self.feats.size(1) == 0

    def to(self, device: torch.device | str) -> Batch:
        """The same batch with its tensors on `device` (non-blocking from pinned memory), its features computed there
        where they were deferred."""
        moved = self._map(lambda tensor: tensor.to(device, non_blocking=True))
        if moved.deferred is None:
            return moved
        if len(moved):
            feats = moved.deferred.compute(moved.feats_lengths, moved.feats.size(1))
        else:  # emptied since
            feats = moved.feats.new_zeros(0, 0, moved.deferred.recipe.dim)
        return replace(moved, feats=feats, deferred=None)

    def rows(self, rows: slice) -> Batch:
        """Some of its utterances, padded to their own longest."""
        tensors = {name: tensor[rows] for name, tensor in self._tensors().items()}
        for name in {"feats", "target", "source"} & tensors.keys():
            tensors[name] = tensors[name][:, : int(tensors[f"{name}_lengths"].max())]
        named = {name: getattr(self, name)[rows] for name in ("keys", "texts", "extra")}
        share = int(tensors["feats_lengths"].sum()) / max(int(self.feats_lengths.sum()), 1)
        whole = {"seconds": self.seconds * share, "skipped": (), "planned": len(named["keys"])}
        return replace(self._with(tensors), **whole, **named)

    def pin_memory(self) -> Batch:
        """Called by the DataLoader's pinning thread."""
        return self._map(lambda tensor: tensor.pin_memory())

    def __reduce__(self) -> tuple[Callable, tuple]:
        """Tensors that share one memory cross processes as one."""
        from wenet_uio.dataset.batch_memory import pack

        tensors = self._tensors()
        return _unpacked, (self._with(dict.fromkeys(tensors)).__dict__, *pack(tensors))

    def _tensors(self) -> dict[str, torch.Tensor]:
        names = ("feats", "feats_lengths", "target", "target_lengths", "source", "source_lengths")
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.deferred is not None:
            found.update((f"deferred.{name}", tensor) for name, tensor in self.deferred.tensors().items())
        return found

    def _with(self, tensors: dict[str, torch.Tensor | None]) -> Batch:
        own = {name: tensor for name, tensor in tensors.items() if "." not in name}
        if self.deferred is not None:
            others = {name.partition(".")[2]: tensor for name, tensor in tensors.items() if "." in name}
            own["deferred"] = replace(self.deferred, **others)
        return replace(self, **own)

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        return self._with({name: function(tensor) for name, tensor in self._tensors().items()})


def _unpacked(values: dict[str, Any], *packed: Any) -> Batch:
    from wenet_uio.dataset.batch_memory import unpack

    return Batch(**values)._with(unpack(*packed))
