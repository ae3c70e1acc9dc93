"""Options of transcription from Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wenet_uio.addons.listen.speech import DETECTORS
from wenet_uio.addons.listen.tracks import ChosenChannel, parse_channel
from wenet_uio.addons.listen.transcription import Cutting
from wenet_uio.base.options import option, values_of
from wenet_uio.search.modes import check_modes
from wenet_uio.search.options import ScorerOptions
from wenet_uio.search.types import RequestOptions


@dataclass(frozen=True)
class TranscribeOptions(RequestOptions, ScorerOptions):
    """Options of `transcribe` and `stream`; hot words and language model work in two modes, see
    `build_scorers`.

    Raises:
        ValueError: an unknown mode, or a number out of range.
    """

    mode: str | None = None
    """Decode mode; None: that of the model, see `usual_mode`."""
    channel: ChosenChannel | None = option(None, parse=parse_channel)
    """Number of the channel, from 0; `mix`: the mean of all; `each`: all, one by one; None: the channel
    of the training, and each other channel that sounds while it is quiet."""
    pause: float | None = option(None, metavar="SECONDS")
    """Cut at pauses of this many seconds; 0: windows only; None: 0.4."""
    detector: str | None = option(None, choices=DETECTORS)
    """What finds speech: silero (package silero-vad), energy, or auto, which is silero if it is
    installed; None: auto."""
    usual: float | None = option(None, metavar="SECONDS")
    """Cut segments longer than this many seconds at shorter pauses as well; None: the 95th
    percentile of the training utterances, at most 15."""
    window: float | None = option(None, metavar="SECONDS")
    """Longest piece that is recognised at once, in seconds; None: the longest training utterance,
    at most 20."""
    overlap: float | None = option(None, metavar="SECONDS")
    """Seconds that windows share; None: 4, at most half a window."""
    one_pass: bool = False
    """The encoder sees each recording as a whole, in memory that does not grow with its length, and
    the search its segments. Needs a model with two limits of att_context_size, best with
    rope_pos."""
    batch_size: int = 8
    """Segments that are recognised together, also of several recordings."""
    device: str | None = None
    """cpu, cuda, cuda:N or auto; None: the device of `load_model`."""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of DecodeOptions, such as ctc_weight and decoding_chunk_size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode is not None:
            check_modes([self.mode])
        if self.batch_size < 1:
            raise ValueError(f"batch_size: expected 1 or more, found {self.batch_size}")

        if isinstance(self.hot_words, str):
            raise ValueError(
                f"hot_words: expected a list of phrases, found the text {self.hot_words!r}"
            )

    def cutting(self, usual: Cutting) -> Cutting:
        """Return these values, and those of `usual` where they are None."""
        changes = {
            name: value for name, value in values_of(Cutting, self).items() if value is not None
        }
        if changes.get("pause") == 0:
            changes["pause"] = None
        if "window" in changes and "overlap" not in changes:
            changes["overlap"] = min(Cutting.overlap, changes["window"] / 2)

        return replace(usual, **changes)
