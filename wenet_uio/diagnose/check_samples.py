"""The part of checking a list that looks at single samples, in processes of its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from wenet_uio.audio.read import INT16_SCALE
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.filters import FILTER_FRAMES_PER_SECOND, token_count_filters, token_rate_filters
from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.types import SampleRef, SkipSample
from wenet_uio.diagnose.histogram import LogHistogram
from wenet_uio.text.symbols import WORD_START
from wenet_uio.text.tokenizer import Tokenizer

SILENT = 10 ** (-60 / 20)
"""Root mean square, 1 at full scale."""
FULL_SCALE = 0.998
CLIPPED = 0.001
"""Share of the samples at full scale."""
RATE_EXAMPLES = 20
"""Utterances of each sample rate that are named."""


class Finding(NamedTuple):
    """Something wrong with, or odd about, a sample or a shard."""

    kind: str
    key: str
    """Of the sample; the path of a shard."""
    detail: str
    place: tuple[int, int] | None = None
    """Shard and row of a sample that is in the index."""


class Fences(NamedTuple):
    """What lies outside is an outlier."""

    low: float
    high: float

    def holds_out(self, value: float) -> bool:
        return not self.low <= value <= self.high


@dataclass(frozen=True)
class Checks:
    """What to look for."""

    conf: DatasetConf
    tokenizer: Tokenizer | None
    measure: Measure | None
    """Of training, where its filters are asked for."""
    planned: Corpus
    """The corpus as the plan sees it: with tokens counted, where it counts them."""
    audio: bool
    seconds: Fences
    speech: Fences
    """Characters per second."""


@dataclass
class Part:
    """What was found in some rows of a shard."""

    rows: int
    findings: list[Finding] = field(default_factory=list)
    rates: Counter[int] = field(default_factory=Counter)
    of_rate: dict[int, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    """A few samples of each sample rate."""
    unknown: Counter[str] = field(default_factory=Counter)
    filtered: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)
    """Tokens."""
    level: LogHistogram = field(default_factory=LogHistogram)


class Checker:
    """Checks rows of a corpus; each process has one."""

    def __init__(self, corpus: Corpus, checks: Checks) -> None:
        self.corpus, self.checks = corpus, checks
        self.reader = BatchReader(corpus, (), (), checks.conf)

    def check(self, shard: int, first: int, last: int) -> Part:
        """Rows `first` up to `last` of a shard."""
        part = Part(last - first)
        rows = self.corpus.rows(shard)
        kept = self.checks.measure.keep(self.checks.planned.rows(shard))[0] if self.checks.measure else None
        for row in range(first, last):
            place, ref = (shard, row), SampleRef(shard, row)
            seconds = float(rows.seconds[row]) if rows.sample_rate[row] != TEXT_ONLY else None
            try:
                if self.checks.audio:
                    example = self.reader.example(ref, 0, partial(self.corpus.read, ref))
                    text = example.text
                    if example.waveform is not None:
                        self._hear(part, place, example.key, example.waveform.numpy(), example.sample_rate)
                else:
                    text = self.corpus.read(ref).text
            except SkipSample as skip:
                part.findings.append(Finding(skip.reason, rows.key(row), skip.detail, place))
                continue
            except (ListError, OSError) as error:
                part.findings.append(Finding("unreadable", rows.key(row), str(error), place))
                continue
            self._read(part, place, rows.key(row), text, seconds, kept is None or bool(kept[row]))
        return part

    def _hear(self, part: Part, place: tuple[int, int], key: str, waveform: np.ndarray, rate: int) -> None:
        samples = np.abs(waveform) / INT16_SCALE
        level = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
        clipped = float(np.mean(samples >= FULL_SCALE))
        part.level.add(np.array([level]))
        part.rates[rate] += 1
        if len(part.of_rate[rate]) < RATE_EXAMPLES:
            part.of_rate[rate].append(Finding("other_rate", key, f"{rate} Hz", place))
        if level < SILENT:
            decibels = f"{20 * np.log10(level):.0f} dB" if level else "nothing but zeros"
            part.findings.append(Finding("silent", key, decibels, place))
        if clipped > CLIPPED:
            part.findings.append(Finding("clipped", key, f"{clipped:.1%} of the samples at full scale", place))

    def _read(
        self, part: Part, place: tuple[int, int], key: str, text: str, seconds: float | None, takes_part: bool
    ) -> None:
        """Look at a text; `seconds` of its audio, None where it has none."""
        text = text.strip()
        if seconds is not None and self.checks.seconds.holds_out(seconds):
            part.findings.append(Finding("duration", key, f"{seconds:.2f} s", place))
        if not text:
            part.findings.append(Finding("empty_text", key, f"{seconds:.2f} s of audio", place))
            return
        if seconds is not None and self.checks.speech.holds_out(len(text) / max(seconds, 1e-3)):
            detail = f"{len(text) / max(seconds, 1e-3):.3g} characters a second: {len(text)} in {seconds:.2f} s"
            part.findings.append(Finding("characters_per_second", key, f"{detail}: {text[:60]}", place))
        if self.checks.tokenizer is None:
            return
        tokens = self.checks.tokenizer.splitter(text)
        part.seen.update(tokens)
        unknown = Counter(token for token in tokens if token not in self.checks.tokenizer.symbols)
        part.unknown += unknown
        if unknown.pop(WORD_START, 0):
            part.findings.append(Finding("space_to_unknown", key, text[:60], place))
        if unknown:
            named = " ".join(list(unknown)[:10])
            part.findings.append(Finding("unknown_unit", key, f"{named} in: {text[:60]}", place))
        if takes_part and self.checks.measure and not self.checks.measure.text_length_is_tokens:
            filters = token_count_filters(self.checks.conf.filter_conf, len(tokens))
            if seconds is not None:
                frames = seconds * FILTER_FRAMES_PER_SECOND
                filters += token_rate_filters(self.checks.conf.filter_conf, len(tokens), frames)
            if reason := next((reason for reason, is_out in filters if is_out), None):
                part.filtered[reason] += 1


_checker: Checker


def begin(corpus: Corpus, checks: Checks) -> None:
    """Make the checker of this process."""
    global _checker
    torch.set_num_threads(1)
    _checker = Checker(corpus, checks)


def check_rows(job: tuple[int, int, int]) -> Part:
    """(shard, first, last): see `Checker.check`."""
    return _checker.check(*job)
