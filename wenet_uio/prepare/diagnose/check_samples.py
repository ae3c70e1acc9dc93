"""Check single samples, in worker processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from wenet_uio.audio.decoders import FRAME_RATE, INT16_SCALE, why_past_the_end
from wenet_uio.audio.lost_sound import SHORTEST, is_quiet, sounds
from wenet_uio.audio.read import OUT_OF_RESOURCES, audio_info, read_audio
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.tokens import NO_CTC_PATH, CtcFrames
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.lengths import (
    FILTER_FRAMES_PER_SECOND,
    frame_count,
    resampled_length,
    token_count_filters,
    token_rate_filters,
)
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.types import AudioUtterance, Example, SampleRef, SkipSample, Utterance
from wenet_uio.prepare.diagnose.findings import Finding, LogHistogram
from wenet_uio.text.aggregate import UnknownLanguageError
from wenet_uio.text.characters import oddities, visible, without_invisible
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.symbols import WORD_START

SILENT = 10 ** (-60 / 20)
"""Audio is silent below this root mean square; 1 is full scale."""
FULL_SCALE = 0.998
"""A sample of at least this absolute value counts as full scale."""
CLIPPED = 0.001
"""Audio is clipped if a larger share of its samples is at full scale."""
RATE_EXAMPLES = 20
"""Number of utterances of each rare sample rate that the report names."""
SHOWN_TEXT = 60
"""Characters of a text that a finding quotes."""
SHOWN_TOKENS = 10
"""Unknown tokens of a text that a finding names."""
FRAME = 0.02
"""Seconds of which a level is measured."""


class Span(NamedTuple):
    """Consecutive rows of a shard: `first` up to but not including `last`."""

    shard: int
    first: int
    last: int


class Fences(NamedTuple):
    """Limits of usual values; values outside are outliers."""

    low: float
    high: float

    def exclude(self, value: float) -> bool:
        """Tell whether a value is an outlier."""
        return not self.low <= value <= self.high


@dataclass
class Part:
    """Findings and figures of some rows."""

    rows: int = 0
    """Number of rows that were checked."""
    findings: list[Finding] = field(default_factory=list)
    rates: Counter[int] = field(default_factory=Counter)
    """Number of utterances by sample rate in Hz."""
    examples_of_rate: dict[int, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    """The first `RATE_EXAMPLES` utterances of each sample rate."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Tokens that are not in the units file, with their number of occurrences."""
    filtered: Counter[str] = field(default_factory=Counter)
    """Utterances that bounds on tokens leave out, by reason."""
    occurring: set[str] = field(default_factory=set)
    """Tokens that occur in the texts."""
    level: LogHistogram = field(default_factory=LogHistogram)
    """Root mean square of the audio; 1 is full scale."""


def _why_too_late(utterance: Utterance, example: Example) -> str | None:
    """Say why a segment ends after its audio; None if it does not.

    Such turns of conversations are bad samples already.
    """
    if example.waveform is None or not isinstance(utterance, AudioUtterance):
        return None
    seconds = len(example.waveform) / example.sample_rate
    return why_past_the_end(utterance.start, utterance.end, seconds)


@dataclass(frozen=True)
class Checker:
    """Checks rows of a corpus.

    It can be pickled: workers receive it with each job and open the corpus again.
    """

    corpus: Corpus
    conf: DatasetConf
    tokenizer: Tokenizer | None
    """None: tokens are not checked."""
    measure: Measure | None
    """Measure of training, whose filters apply; None: no filters."""
    planned: Corpus
    """The corpus as the plan sees it: with tokens counted if the plan needs their number."""
    audio: bool
    """False: index and text are checked, and no audio is decoded."""
    ctc_frames: CtcFrames | None
    """Frames of CTC in the model; None: texts are not compared with them."""
    seconds: Fences
    """Usual durations."""
    speech: Fences
    """Usual characters per second."""

    def check(self, job: Sequence[Span]) -> Part:
        """Check some rows, in a worker process.

        Sets the number of torch threads of the process to 1.
        """
        torch.set_num_threads(1)
        reader = BatchReader(self.corpus, self.conf)
        part = Part()
        for span in job:
            self._check_span(part, reader, span)

        return part

    def _check_span(self, part: Part, reader: BatchReader, span: Span) -> None:
        """Check consecutive rows: first the audio, then the text with its tokens."""
        rows = self.corpus.rows(span.shard)
        is_kept = np.ones(len(rows), bool)  # (samples,) by the filters of training
        if self.measure is not None:
            is_kept, _ = self.measure.keep(self.planned.rows(span.shard))

        for row in range(span.first, span.last):
            part.rows += 1
            place = (span.shard, row)
            key = rows.key(row)
            has_audio = rows.sample_rate[row] != TEXT_ONLY
            seconds = float(rows.seconds[row]) if has_audio else None

            try:
                text, fields = self._check_audio(part, reader, SampleRef(*place))
            except SkipSample as skip:
                part.findings.append(Finding(skip.reason, key, skip.detail, place))
                continue

            text = text.strip()
            self._check_text(part, place, key, text, seconds)
            for kind, names in oddities(text):
                detail = f"{names} in: {visible(text)[:SHOWN_TEXT]}"
                part.findings.append(Finding(kind, key, detail, place))
            if self.tokenizer is not None and text:
                tokens = self._split_checked(part, place, key, text, fields)
                if is_kept[row]:
                    self._filter_tokens(part, len(tokens), seconds)
                if has_audio:
                    self._check_ctc_path(part, place, key, tokens)

    def _split_checked(
        self, part: Part, place: tuple[int, int], key: str, text: str, fields: Mapping[str, Any]
    ) -> list[str]:
        """Return the tokens of a text, checked; none if its language is not known."""
        assert self.tokenizer is not None
        try:
            tokens = self.tokenizer.of(fields).splitter(text)
        except UnknownLanguageError as error:
            part.findings.append(Finding("unknown_language", key, str(error), place))
            return []

        self._check_tokens(part, place, key, text, tokens)
        return tokens

    def _check_audio(
        self, part: Part, reader: BatchReader, ref: SampleRef
    ) -> tuple[str, Mapping[str, Any]]:
        """Read a sample, check its audio if audio is checked, and return text and other fields."""
        if not self.audio:
            return self._read_text(ref)

        # The reader turns errors of reading into reasons to skip the sample. It returns an example,
        # which no longer has the bounds of the segment, so that the utterance is kept here.
        utterances: list[Utterance] = []
        example = reader.example(ref, 0, partial(self._read_and_keep, utterances, ref))
        [utterance] = utterances
        place, key, rate = (ref.shard, ref.row), example.key, example.sample_rate
        reason = _why_too_late(utterance, example)
        if reason is not None:
            part.findings.append(Finding("past_the_end", key, reason, place))
        if example.waveform is None:
            return example.text, example.extra

        self._check_channels(part, place, utterance)
        samples = np.abs(example.waveform.numpy()) / INT16_SCALE
        level = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
        clipped = float(np.mean(samples >= FULL_SCALE))
        part.level.add(np.array([level]))
        part.rates[rate] += 1
        if len(part.examples_of_rate[rate]) < RATE_EXAMPLES:
            part.examples_of_rate[rate].append(Finding("other_rate", key, f"{rate} Hz", place))

        if level < SILENT:
            detail = f"{20 * np.log10(level):.0f} dB" if level else "all samples are zero"
            part.findings.append(Finding("silent", key, detail, place))
        if clipped > CLIPPED:
            detail = f"{clipped:.1%} of the samples at full scale"
            part.findings.append(Finding("clipped", key, detail, place))

        return example.text, example.extra

    def _check_channels(self, part: Part, place: tuple[int, int], utterance: Utterance) -> None:
        """Find sound on channels that are not read."""
        if not isinstance(utterance, AudioUtterance):
            return

        channel = utterance.extra.get("channel", self.conf.singal_channel_conf.channel)
        lost = other_sound(utterance, channel)
        if lost is not None:
            part.findings.append(Finding("other_channel", utterance.key, lost, place))

    def _read_and_keep(self, utterances: list[Utterance], ref: SampleRef) -> Utterance:
        """Read a sample, and keep it in the list."""
        utterances.append(self.corpus.read(ref))
        return utterances[0]

    def _read_text(self, ref: SampleRef) -> tuple[str, Mapping[str, Any]]:
        """Read the text and the other fields of a sample, without decoding its audio."""
        try:
            utterance = self.corpus.read(ref)
        except (ListError, OSError) as error:
            # Too many open files, say, is a fault of the machine and not of the sample.
            if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
                raise
            raise SkipSample("unreadable", str(error)) from None

        return utterance.text, utterance.extra

    def _check_text(
        self, part: Part, place: tuple[int, int], key: str, text: str, seconds: float | None
    ) -> None:
        """Compare a text with the duration of its audio.

        Text without audio, whose `seconds` are None, is not checked.
        """
        if seconds is None:
            return
        if self.seconds.exclude(seconds):
            part.findings.append(Finding("duration", key, f"{seconds:.2f} s", place))

        speech = len(text) / max(seconds, 1e-3)
        if not without_invisible(text).strip():
            shows = f", {len(text)} invisible characters" if text else ""
            detail = f"{seconds:.2f} s of audio{shows}"
            part.findings.append(Finding("empty_text", key, detail, place))
        elif self.speech.exclude(speech):
            detail = (
                f"{speech:.3g} characters per second: {len(text)} in {seconds:.2f} s: "
                f"{text[:SHOWN_TEXT]}"
            )
            part.findings.append(Finding("characters_per_second", key, detail, place))

    def _check_tokens(
        self, part: Part, place: tuple[int, int], key: str, text: str, tokens: list[str]
    ) -> None:
        """Find tokens that the tokenizer has no unit for."""
        assert self.tokenizer is not None
        part.occurring.update(tokens)
        unknown = Counter(token for token in tokens if token not in self.tokenizer.symbols)
        part.unknown += unknown
        if unknown.pop(WORD_START, 0):
            part.findings.append(Finding("space_to_unknown", key, text[:SHOWN_TEXT], place))

        if unknown:
            shown_tokens = " ".join(list(unknown)[:SHOWN_TOKENS])
            detail = f"{shown_tokens} in: {text[:SHOWN_TEXT]}"
            part.findings.append(Finding("unknown_unit", key, detail, place))

    def _check_ctc_path(
        self, part: Part, place: tuple[int, int], key: str, tokens: list[str]
    ) -> None:
        """Find labels that do not fit into the frames of CTC."""
        if self.ctc_frames is None:
            return

        assert self.tokenizer is not None
        labels = [self.tokenizer.symbols.get(token, -1) for token in tokens]
        obstacle = self.ctc_frames.obstacle(labels, self._feature_frames(SampleRef(*place)))
        if obstacle is not None:
            part.findings.append(Finding(NO_CTC_PATH, key, obstacle, place))

    def _feature_frames(self, ref: SampleRef) -> int:
        """Return the number of frames of features of a sample."""
        rows = self.corpus.rows(ref.shard)
        num_samples, rate = int(rows.num_samples[ref.row]), int(rows.sample_rate[ref.row])
        if rate == FRAME_RATE:  # stored features, whose frames count as samples
            return num_samples

        frames_in = frame_count(self.conf, training=True)
        return int(
            frames_in(resampled_length(np.asarray(num_samples), rate, frames_in.sample_rate))
        )

    def _filter_tokens(self, part: Part, tokens: int, seconds: float | None) -> None:
        """Count an utterance that training filters by its number of tokens.

        If the plan knows these numbers, it has applied the filters already.
        """
        if self.measure is None or self.measure.text_length_is_tokens:
            return

        filters = token_count_filters(self.conf.filter_conf, tokens, seconds is None)
        if seconds is not None:
            frames = seconds * FILTER_FRAMES_PER_SECOND
            filters += token_rate_filters(self.conf.filter_conf, tokens, frames)

        reasons = [reason for reason, is_out in filters if is_out]
        if reasons:
            part.filtered[reasons[0]] += 1


def other_sound(utterance: AudioUtterance, channel: int | str) -> str | None:
    """Say which channels sound while the read channel is quiet; None if no channel does.

    Args:
        channel: number of the read channel; `mix` reads all.

    Raises:
        AudioError: the audio cannot be read.
    """
    if channel == "mix":
        return None
    info = audio_info(utterance.audio)
    if info.is_features or info.channels < 2:
        return None

    levels = _frame_levels(utterance)  # (channels, frames)
    read_is_quiet = is_quiet(levels[int(channel)])
    lost: list[str] = []
    for number, channel_levels in enumerate(levels):
        seconds = FRAME * np.count_nonzero(read_is_quiet & sounds(channel_levels))
        if number != channel and seconds >= SHORTEST:
            lost.append(f"channel {number} sounds for {seconds:.1f} s in which it is quiet")

    return f"channel {channel} is read; {', '.join(lost)}" if lost else None


def _frame_levels(utterance: AudioUtterance) -> np.ndarray:
    """Return the level of each frame of each channel, (channels, frames), in dB of full scale."""
    waveform, rate = read_audio(utterance.audio, utterance.start, utterance.end, channel=None)
    length = max(1, round(FRAME * rate))
    num_frames, channels = len(waveform) // length, waveform.shape[1]
    frames = waveform[: num_frames * length].reshape(num_frames, length, channels) / INT16_SCALE
    power = np.mean(np.square(frames, dtype=np.float64), axis=1).T  # (channels, frames)
    return 10 * np.log10(np.maximum(power, 1e-12))
