"""Options of transcription: where recordings are cut, how they are recognised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wenet_uio.addons.listen.speech import (
    DETECTORS,
    USUAL_MARGINS,
    Margins,
    Segment,
    Speech,
    cut_windows,
    find_speech,
)
from wenet_uio.addons.listen.tracks import ChosenChannel, parse_channel
from wenet_uio.addons.listen.voice_activity import INSTALL, is_installed
from wenet_uio.audio.decoders import Channel
from wenet_uio.audio.read import Source, audio_info
from wenet_uio.base.options import option, values_of
from wenet_uio.base.run_files import recorded_utterance_seconds
from wenet_uio.config import Config
from wenet_uio.search.modes import check_modes
from wenet_uio.search.options import ScorerOptions
from wenet_uio.search.types import RequestOptions

CUTTING = ("pause", "usual", "window", "overlap", "detector")
"""Fields of Cutting that are options by their own names."""


@dataclass(frozen=True)
class Cutting:
    """Where long recordings are cut; times are seconds.

    Raises:
        ValueError: a time is not above 0, `overlap` is more than half of `window`, or the detector
            is unknown or not installed.
    """

    pause: float | None = 0.4
    """Shortest pause at which the recording is cut. None: do not cut at pauses, use windows
    only."""
    usual: float = 15.0
    """Segments longer than this are cut at shorter pauses as well."""
    window: float = 20.0
    """Longest piece that the recogniser gets. Longer segments become overlapping windows."""
    overlap: float = 4.0
    """Length that neighbouring windows share."""
    detector: str = "auto"
    """What finds speech: silero, energy, or auto for silero if it is installed."""
    margins: Margins = USUAL_MARGINS
    """Quiet that is kept around speech."""
    whole_up_to: float = 0.0
    """Seconds of quiet at an end up to which a short recording is recognised as it is; see
    DecodingRules.kept_quiet."""

    def __post_init__(self) -> None:
        if not 0 < self.overlap <= self.window / 2:
            raise ValueError(
                f"overlap: expected above 0 and at most half the window, found {self.overlap}"
            )

        if self.detector not in DETECTORS:
            raise ValueError(f"detector: expected {', '.join(DETECTORS)}, found {self.detector}")
        if self.detector == "silero" and not is_installed():
            raise ValueError(f"detector silero: not installed; {INSTALL}")

        for name in ("pause", "usual"):
            seconds = getattr(self, name)
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{name}: expected above 0, found {seconds}")

    @classmethod
    def of_run(cls, folder: str | Path) -> Cutting:
        """Limit segments to the lengths of the run's training utterances.

        If these are unknown, use the defaults.
        """
        seconds = recorded_utterance_seconds(folder)
        if not seconds or not seconds["most"]:
            return cls()

        window = min(seconds["longest"], cls.window)
        return cls(
            usual=min(seconds["most"], cls.usual),
            window=window,
            overlap=min(cls.overlap, window / 2),
        )

    def for_model(self, config: Config) -> Cutting:
        """Keep as much quiet as the model of a config knows."""
        whole_up_to = config.family.decoding.kept_quiet
        heard = config.dataset_conf.heard_quiet
        if heard is None:
            return replace(self, whole_up_to=whole_up_to)
        margins = Margins.of(heard.before, heard.behind)
        return replace(self, margins=margins, whole_up_to=whole_up_to)

    def passages(
        self,
        source: Source,
        channel: Channel,
        *,
        in_turns: bool = False,
    ) -> list[Speech]:
        """Find the passages of a file.

        A file that is no longer than a window is one passage, unless speakers on several channels
        talk in turns: then each turn is one.
        """
        if self.pause is not None:
            uncut = 0.0 if in_turns else self.window
            return find_speech(
                source,
                channel,
                self.pause,
                self.usual,
                self.detector,
                uncut=uncut,
                kept_quiet=self.whole_up_to,
                margins=self.margins,
            )

        info = audio_info(source)
        return [Speech(Segment(0.0, info.num_samples / info.sample_rate), None)]

    def windows(self, passage: Segment) -> Iterator[Segment]:
        """Cut a passage into the pieces that the recogniser gets."""
        return cut_windows(passage, self.window, self.overlap)


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
    kept_quiet: float | None = option(None, metavar="SECONDS")
    """Quiet that is kept before and behind speech, where the recording has it; None: as much as the
    training utterances had (heard_quiet of train.yaml), or 0.2 if that is unknown."""
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

        if self.kept_quiet is not None and not self.kept_quiet >= 0:
            raise ValueError(f"kept_quiet: expected 0 or more seconds, found {self.kept_quiet:g}")

        if isinstance(self.hot_words, str):
            raise ValueError(
                f"hot_words: expected a list of phrases, found the text {self.hot_words!r}"
            )

    def cutting(self, usual: Cutting) -> Cutting:
        """Return these values, and those of `usual` where they are None."""
        asked = values_of(Cutting, self, *CUTTING)
        changes: dict[str, Any] = {
            name: value for name, value in asked.items() if value is not None
        }
        if self.kept_quiet is not None:
            changes |= {"margins": Margins.of(self.kept_quiet, self.kept_quiet), "whole_up_to": 0.0}
        if changes.get("pause") == 0:
            changes["pause"] = None
        if "window" in changes and "overlap" not in changes:
            changes["overlap"] = min(Cutting.overlap, changes["window"] / 2)

        return replace(usual, **changes)
