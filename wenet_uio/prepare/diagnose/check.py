"""Check every sample of a data list as training would read it, and name what is wrong or unusual.

opened_for_check   data list   -> corpus, and findings for the shards and samples that the corpus leaves out
check_corpus       corpus      -> Report: what training would lose, what is suspect, figures

`findings.py` lists the kinds of findings. `check_shards.py` checks shards, and `check_samples.py`
single samples. This module checks the list as a whole: duplicate keys, limits of outliers, filters,
rare sample rates, unused units.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from wenet_uio.base.executor import Executor, chunks
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.tokens import CtcFrames
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.open import as_planned
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.prepare.diagnose.check_samples import RATE_EXAMPLES, Checker, Fences, Part, Span
from wenet_uio.prepare.diagnose.findings import Finding, LogHistogram, Report
from wenet_uio.text.aggregate import AggregateSplitter
from wenet_uio.text.labels import OwnUnits, Tokenizer
from wenet_uio.text.symbols import BLANK, SOS_EOS, UNKNOWN

ROWS_A_SPAN = 250
"""Rows of a shard that are checked together."""
JOBS_A_PROCESS = 32
"""Jobs of each process. They are few, because a worker opens the corpus again for each job."""
FEWEST_FOR_OUTLIERS = 20
"""A smaller corpus has no outliers."""
FENCE = 3.0
"""Outliers lie this many quartile ranges beyond the quartiles, on a logarithmic scale (Tukey's
outer fences)."""
NARROWEST = 0.1
"""Least quartile range, in powers of ten: even among equal durations, an outlier is half or twice
as long."""
HASHES_A_PASS = 1 << 23
"""Number of key hashes in memory at a time, when duplicates are searched."""
SPECIAL = {BLANK, UNKNOWN, SOS_EOS, "<sos>", "<eos>"}
"""Units that occur in no text by design."""


@dataclass(frozen=True)
class Reading:
    """How training reads the list that is checked."""

    conf: DatasetConf = field(default_factory=DatasetConf)
    """Says which channel is read, and holds the filters."""
    tokenizer: Tokenizer | None = None
    """None: texts are not compared with units."""
    filters: bool = False
    """True: with a tokenizer, the report counts the utterances that `conf.filter_conf` leaves
    out."""
    ctc_frames: CtcFrames | None = None
    """Frames of CTC in the model; None: texts are not compared with them."""


def check_corpus(
    corpus: Corpus,
    not_indexed: list[Finding],
    reading: Reading,
    *,
    audio: bool = True,
    processes: int = 1,
) -> Report:
    """Check every sample.

    Args:
        not_indexed: the findings of `opened_for_check`.
        audio: False checks index and text only and decodes no audio.
        processes: worker processes.

    Raises:
        ValueError: fewer than one process.
        ChildProcessError: a worker process died.
    """
    report = Report(corpus.num_samples, corpus.total_seconds / 3600)
    for finding in not_indexed:
        report.add(finding)
    for finding in _duplicate_keys(corpus):
        report.add(finding)

    _add_distributions(report, corpus)
    measure, planned = _measure_and_corpus(corpus, reading)
    if measure is not None:
        report.filtered += measure.filtered(planned)

    checker = Checker(
        corpus=corpus,
        conf=reading.conf,
        tokenizer=reading.tokenizer,
        measure=measure,
        planned=planned,
        audio=audio,
        ctc_frames=reading.ctc_frames,
        seconds=usual_range(report.seconds),
        speech=usual_range(report.speech),
    )
    occurring = _add_parts(report, _check_in_processes(checker, processes))

    # Vocabularies of models cover more than one corpus: units that do not occur say nothing.
    tokenizer = reading.tokenizer
    if tokenizer is not None and not isinstance(tokenizer.splitter, OwnUnits | AggregateSplitter):
        report.unseen = sorted(tokenizer.symbols.keys() - occurring - SPECIAL)

    return report


def _add_distributions(report: Report, corpus: Corpus) -> None:
    """Count durations and characters per second of the whole corpus, from its index."""
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        has_audio = rows.sample_rate != TEXT_ONLY
        seconds = rows.seconds[has_audio]
        report.seconds.add(seconds)
        report.speech.add(rows.text_length[has_audio] / np.maximum(seconds, 1e-3))


def _measure_and_corpus(corpus: Corpus, reading: Reading) -> tuple[Measure | None, Corpus]:
    """Return the measure whose filters apply, if any, and the corpus that the plan would read.

    This corpus has its tokens counted if the plan needs them.

    If the plan does not know the numbers of tokens, the checks of single samples apply the filters
    on tokens.
    """
    if reading.tokenizer is None or not reading.filters:
        return None, corpus
    planned, measure = as_planned(corpus, reading.conf, reading.tokenizer)
    return measure, planned


def _add_parts(report: Report, parts: Iterator[Part]) -> set[str]:
    """Add the findings and figures of the samples to the report; return the tokens that occur."""
    occurring: set[str] = set()
    examples_of_rate: dict[int, list[Finding]] = defaultdict(list)
    for part in parts:
        for finding in part.findings:
            report.add(finding)

        report.rates.update(part.rates)
        report.unknown.update(part.unknown)
        report.filtered.update(part.filtered)
        report.level.merge(part.level)
        occurring |= part.occurring
        for rate, findings in part.examples_of_rate.items():
            room = RATE_EXAMPLES - len(examples_of_rate[rate])
            examples_of_rate[rate] += findings[:room]

    # All rates but that of the majority, which is known only now
    for rate, count in report.rates.most_common()[1:]:
        report.findings.extend(examples_of_rate[rate])
        report.counts["other_rate"] += count

    return occurring


def _check_in_processes(checker: Checker, processes: int) -> Iterator[Part]:
    """Check all rows of the corpus, in worker processes if there are several."""
    spans: list[Span] = []
    for shard, samples in enumerate(checker.corpus.samples.tolist()):
        for first in range(0, samples, ROWS_A_SPAN):
            spans.append(Span(shard, first, min(first + ROWS_A_SPAN, samples)))

    num_jobs = JOBS_A_PROCESS * max(1, processes)
    jobs = chunks(spans, max(1, math.ceil(len(spans) / num_jobs)))
    return Executor(processes).map(
        checker.check,
        jobs,
        "check",
        checker.corpus.num_samples,
        size=lambda job: sum(span.last - span.first for span in job),
    )


def _duplicate_keys(corpus: Corpus) -> Iterator[Finding]:
    """Find samples whose key occurred before.

    Each pass compares a part of all hashes, which bounds the memory.
    """
    passes = math.ceil(corpus.num_samples / HASHES_A_PASS)
    for number in range(passes):
        hashes: list[np.ndarray] = []
        for shard in range(corpus.num_shards):
            key_hash = corpus.rows(shard).key_hash  # (samples,)
            is_of_pass = key_hash % np.uint64(passes) == number
            hashes.append(key_hash[is_of_pass])

        unique, counts = np.unique(np.concatenate(hashes), return_counts=True)
        repeated = unique[counts > 1]
        if not len(repeated):
            continue

        # Different keys may have one hash: the keys decide.
        earlier_keys: set[str] = set()
        for shard in range(corpus.num_shards):
            rows = corpus.rows(shard)
            for row in np.flatnonzero(np.isin(rows.key_hash, repeated)).tolist():
                key = rows.key(row)
                if key in earlier_keys:
                    detail = f"occurs again as sample {row} of shard {shard}"
                    yield Finding("duplicate_key", key, detail, (shard, row))

                earlier_keys.add(key)


def usual_range(histogram: LogHistogram) -> Fences:
    """Return the limits beyond which values are outliers.

    They are infinite if there are fewer than `FEWEST_FOR_OUTLIERS` values.
    """
    if histogram.counts.sum() < FEWEST_FOR_OUTLIERS:
        return Fences(-np.inf, np.inf)

    # Quartiles as powers of ten
    low = float(np.log10(histogram.quantile(0.25)))
    high = float(np.log10(histogram.quantile(0.75)))
    margin = FENCE * max(high - low, NARROWEST)
    return Fences(10 ** (low - margin), 10 ** (high + margin))
