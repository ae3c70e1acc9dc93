"""Looks at every sample of a data list as training would read it, and names what is wrong or odd.

opened_for_check   list       -> corpus, and the shards that cannot be opened
check_corpus       corpus     -> Report: what training would lose, what is suspect, figures
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.corpus.indexing import check_type, index_shard
from wenet_uio.dataset.formats.data_list import DataType, ListError, ShardFiles, read_shard_list
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.ledger import NOT_INDEXED
from wenet_uio.dataset.open import MIXTURE_SUFFIXES, as_planned, open_corpus
from wenet_uio.diagnose.check_samples import RATE_EXAMPLES, Checks, Fences, Finding, Part, begin, check_rows
from wenet_uio.diagnose.histogram import LogHistogram
from wenet_uio.text.symbols import BLANK, SOS_EOS, UNKNOWN
from wenet_uio.text.tokenizer import Tokenizer

LOSSES = {
    "broken_shard": "shards that are missing or damaged",
    "empty_shard": "shards without a sample",
    NOT_INDEXED: "missing or unreadable audio, audio without text, text without audio, lines that are no JSON",
    "unreadable": "audio that does not decode",
    "changed_length": "audio of another length than its header or its line says",
    "duplicate_key": "keys that came before: results hold one utterance a key",
    "empty_text": "audio without a word",
}
"""Kinds of findings by which training loses something."""
SUSPECTS = {
    "silent": "audio below -60 dB of full scale",
    "clipped": "more than 0.1 % of the samples at full scale",
    "other_rate": "sample rates that are not that of most",
    "duration": "far shorter or longer than the others",
    "characters_per_second": "far less or more text for the audio than the others have",
    "space_to_unknown": "spaces that are no unit: take them out of the text, or make units of text that has them",
    "unknown_unit": "text with tokens that are no unit",
}
"""Kinds of findings that are worth a look."""
KEPT = 1000
"""Findings of a suspect kind that are named; the others are counted."""
ROWS_A_JOB = 250
FEWEST_FOR_OUTLIERS = 20
FENCE = 3.0
"""Quartile ranges, of logarithms, beyond the quartiles where outliers begin (Tukey's far out)."""
NARROWEST = 0.1
"""Least quartile range, in powers of ten: a corpus of equal lengths has no outliers at 10 %."""
HASHES_A_PASS = 1 << 23
SPECIAL = {BLANK, UNKNOWN, SOS_EOS, "<sos>", "<eos>"}
"""Units that no text has."""


@dataclass
class Report:
    """What was found."""

    utterances: int
    """Indexed."""
    hours: float
    findings: list[Finding] = field(default_factory=list)
    """All losses; of each suspect kind the first `KEPT`."""
    counts: Counter[str] = field(default_factory=Counter)
    """Findings by kind."""
    filtered: Counter[str] = field(default_factory=Counter)
    """Utterances that filter_conf leaves out, by reason: the user's wish, and no loss."""
    rates: Counter[int] = field(default_factory=Counter)
    """Utterances by sample rate, Hz."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Tokens that are no unit, with how often they come."""
    unseen: list[str] = field(default_factory=list)
    """Units that no text has."""
    seconds: LogHistogram = field(default_factory=LogHistogram)
    speech: LogHistogram = field(default_factory=LogHistogram)
    """Characters per second."""
    level: LogHistogram = field(default_factory=LogHistogram)
    """Root mean square of audio, 1 at full scale."""

    @property
    def losses(self) -> int:
        return sum(self.counts[kind] for kind in LOSSES)

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        if finding.kind in LOSSES or self.counts[finding.kind] <= KEPT:
            self.findings.append(finding)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        distributions = {"duration": self.seconds, "characters_per_second": self.speech, "level": self.level}
        return {
            "utterances": self.utterances,
            "hours": round(self.hours, 4),
            "losses": self.losses,
            "counts": {kind: self.counts[kind] for kind in (*LOSSES, *SUSPECTS)},
            "filtered": dict(self.filtered),
            "rates": {str(rate): count for rate, count in self.rates.most_common()},
            "quantiles": {name: histogram.summary() for name, histogram in distributions.items()},
            "unknown_units": dict(self.unknown.most_common(KEPT)),
            "unseen_units": self.unseen,
            "findings": [{"kind": f.kind, "key": f.key, "detail": f.detail} for f in self.findings],
        }


@contextmanager
def opened_for_check(data_list: str, data_type: DataType) -> Iterator[tuple[Corpus, list[Finding]]]:
    """The corpus of a list without the shards that are not there, and what its index has no place for.

    Raises:
        ListError: no such list, or nothing in it can be read.
    """
    shards: list[str] = []
    found: dict[str, Finding] = {}
    with tempfile.TemporaryDirectory() as folder:
        opened = data_list
        if data_type == "shard" and Path(data_list).suffix not in MIXTURE_SUFFIXES:
            if not Path(data_list).is_file():
                raise ListError(f"{data_list}: no such data list")
            check_type(data_list, data_type)
            shards = read_shard_list(data_list)
            with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                looked_at = pool.map(lambda shard: _look_at(shard, data_list), shards)
                found = {shard: finding for shard, finding in zip(shards, looked_at, strict=True) if finding}
            if any(finding.kind == "broken_shard" for finding in found.values()):
                opened = f"{folder}/whole.list"
                whole = [shard for shard in shards if shard not in found]
                if not whole:
                    first = next(iter(found.values()))
                    raise ListError(f"{data_list}: none of its shards can be read ({first.key}: {first.detail})")
                Path(opened).write_text("".join(f"{shard}\n" for shard in whole), encoding="utf-8")
        corpus = open_corpus(opened, data_type)
        tars = {ShardFiles.parse(shard).tar for shard in shards}
        not_indexed = (
            Finding("broken_shard" if key in tars else NOT_INDEXED, key, reason) for key, reason in corpus.bad
        )
        yield corpus, [*found.values(), *not_indexed]


def check_corpus(
    corpus: Corpus,
    not_indexed: list[Finding],
    conf: DatasetConf,
    *,
    tokenizer: Tokenizer | None = None,
    training: bool = False,
    audio: bool = True,
    processes: int = 1,
) -> Report:
    """Check every sample.

    Args:
        not_indexed: what `opened_for_check` found.
        conf: says which channel is read and, with `training` and a tokenizer, what the filters leave out.
        tokenizer: without one nothing is said of units.
        audio: False looks at index and text only, without decoding.
    """
    report = Report(corpus.num_samples, corpus.total_seconds / 3600)
    for finding in itertools.chain(not_indexed, _duplicates(corpus)):
        report.add(finding)
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        has_audio = rows.sample_rate != TEXT_ONLY
        seconds = rows.seconds[has_audio]
        report.seconds.add(seconds)
        report.speech.add(rows.text_length[has_audio] / np.maximum(seconds, 1e-3))
    measure, planned = None, corpus
    if training and tokenizer is not None:
        planned, measure = as_planned(corpus, conf, tokenizer)
        report.filtered += measure.filtered(planned)
    checks = Checks(conf, tokenizer, measure, planned, audio, _fences(report.seconds), _fences(report.speech))
    seen: set[str] = set()
    of_rate: dict[int, list[Finding]] = {}
    for part in _checked(corpus, checks, processes):
        for finding in part.findings:
            report.add(finding)
        report.rates.update(part.rates)
        report.unknown.update(part.unknown)
        report.filtered.update(part.filtered)
        report.level.merge(part.level)
        seen |= part.seen
        for rate, findings in part.of_rate.items():
            of_rate[rate] = (of_rate.get(rate, []) + findings)[:RATE_EXAMPLES]
    for rate, count in report.rates.most_common()[1:]:
        report.findings.extend(of_rate[rate])
        report.counts["other_rate"] += count
    if tokenizer is not None:
        report.unseen = sorted(tokenizer.symbols.keys() - seen - SPECIAL)
    return report


def _checked(corpus: Corpus, checks: Checks, processes: int) -> Iterator[Part]:
    jobs = [
        (shard, first, min(first + ROWS_A_JOB, samples))
        for shard, samples in enumerate(corpus.samples.tolist())
        for first in range(0, samples, ROWS_A_JOB)
    ]
    with (
        ProcessPoolExecutor(processes, initializer=begin, initargs=(corpus, checks)) as pool,
        tqdm(None, "check", corpus.num_samples, unit="utt", disable=None) as bar,
    ):
        for part in pool.map(check_rows, jobs):
            yield part
            bar.update(part.rows)


def _look_at(shard: str, data_list: str) -> Finding | None:
    """Why nothing of a shard can be had, where that is so; damage that the index tells of is left to it."""
    tar = ShardFiles.parse(shard).tar
    try:
        rows, bad = index_shard(shard, data_list, DEFAULT_LAYOUT)
    except OSError as error:
        return Finding("broken_shard", tar, error.strerror or str(error))
    return None if len(rows) or bad else Finding("empty_shard", tar, "no sample in it")


def _duplicates(corpus: Corpus) -> Iterator[Finding]:
    """Samples whose key came before, a part of all hashes of keys at a time."""
    parts = -(-corpus.num_samples // HASHES_A_PASS)
    for number in range(parts):
        columns = (corpus.rows(shard).key_hash for shard in range(corpus.num_shards))
        hashes = np.concatenate([column[column % np.uint64(parts) == number] for column in columns])
        unique, counts = np.unique(hashes, return_counts=True)
        twice = unique[counts > 1]
        if not len(twice):
            continue
        met: set[str] = set()
        for shard in range(corpus.num_shards):
            rows = corpus.rows(shard)
            for row in np.flatnonzero(np.isin(rows.key_hash, twice)).tolist():
                key = rows.key(row)
                if key in met:
                    yield Finding("duplicate_key", key, f"comes again as sample {row} of shard {shard}", (shard, row))
                met.add(key)


def _fences(histogram: LogHistogram) -> Fences:
    """Where outliers begin; nowhere for a handful."""
    if histogram.counts.sum() < FEWEST_FOR_OUTLIERS:
        return Fences(-np.inf, np.inf)
    low, high = (float(np.log10(histogram.quantile(share))) for share in (0.25, 0.75))
    margin = FENCE * max(high - low, NARROWEST)
    return Fences(10 ** (low - margin), 10 ** (high + margin))
