"""Error rates of recognised text, and reports on them in WeNet's format."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from wenet_uio.base.messages import listed
from wenet_uio.scoring.bootstrap import LEVEL, Comparison, compare, interval
from wenet_uio.scoring.wer import Counts, Pair, align
from wenet_uio.scoring.words import MEASURES, Measure, WordRules, script_of

_RULE = "=" * 75
_NAMED = 10
"""A line of the report names this many keys at most."""


@dataclass
class Scores:
    """Alignments of a test set with their totals."""

    utterances: dict[str, list[Pair]] = field(default_factory=dict)
    """Alignment by key, in the order of the references."""
    overall: Counts = field(default_factory=Counts)
    scripts: dict[str, Counts] = field(default_factory=dict)
    """Totals by script. An inserted word counts for its own script, any other word for the script
    of the reference."""
    missing: list[str] = field(default_factory=list)
    """Keys without hypothesis: all words of their references count as deleted."""
    extra: list[str] = field(default_factory=list)
    """Keys of hypotheses without reference: they are not scored."""
    measure: Measure = "WER"
    """What the error rates are."""

    def counts(self) -> list[Counts]:
        """Return counts of each utterance, in the order of the references."""
        return [Counts.of(pairs) for pairs in self.utterances.values()]


@dataclass(frozen=True)
class ReportFormat:
    """What a report shows, and how."""

    verbose: int = 1
    """0: totals; 1: also alignments and totals by script; 2: alignments with keys."""
    words_per_line: int | None = None
    """Words in a line of an alignment; None: all."""
    padding: str = " "
    """Character that pads a word to the width of the word above or below it."""
    resamples: int = 0
    """Above 0: the report has the interval of the error rate, from this many resamples."""


def score(references: Mapping[str, str], hypotheses: Mapping[str, str], rules: WordRules) -> Scores:
    """Align every reference with the hypothesis of the same key.

    Raises:
        ValueError: no key has both a reference and a hypothesis, so the files do not belong
            together.
    """
    if references and not references.keys() & hypotheses.keys():
        raise ValueError(
            f"no utterance is in both files: references begin with {next(iter(references))}, "
            f"hypotheses with {next(iter(hypotheses), 'nothing')}"
        )

    scores = Scores(extra=[key for key in hypotheses if key not in references])
    pairs_by_script: dict[str, list[Pair]] = {}
    for key, text in references.items():
        if key not in hypotheses:
            scores.missing.append(key)

        pairs = align(rules(text), rules(hypotheses.get(key, "")))
        scores.utterances[key] = pairs
        scores.overall += Counts.of(pairs)
        for pair in pairs:
            reference, hypothesis = pair
            word = hypothesis if reference is None else reference
            pairs_by_script.setdefault(script_of(word or ""), []).append(pair)

    scores.scripts = {script: Counts.of(pairs) for script, pairs in pairs_by_script.items()}
    scores.measure = rules.measure(_reference_words(scores))
    return scores


def write_report(scores: Scores, file: IO[str], form: ReportFormat = ReportFormat()) -> None:
    """Write alignments and totals as `form` says."""
    if form.verbose:
        for key, pairs in scores.utterances.items():
            file.write(f"\nutt: {key}\nWER: {Counts.of(pairs)}\n")
            label = f"({key})" if form.verbose > 1 else ""
            _write_alignment(pairs, file, label, form)
        file.write(f"{_RULE}\n\n")

    _write_totals(scores, file, form.resamples)

    if form.verbose:
        for script, counts in scores.scripts.items():
            file.write(f"{script} -> {counts}\n")
        file.write(f"\n{_RULE}\n")


def _reference_words(scores: Scores) -> Iterator[str]:
    """Yield the words of the references."""
    for pairs in scores.utterances.values():
        for reference, _ in pairs:
            if reference is not None:
                yield reference


def write_comparison(
    first: tuple[str, Scores], second: tuple[str, Scores], file: IO[str], resamples: int
) -> None:
    """Write the totals of two systems, each with its name, and the difference of their error
    rates.
    """
    for number, (name, scores) in enumerate((first, second), 1):
        file.write(f"{number}: {name} -> {scores.overall}\n")

    comparison = compare(first[1].counts(), second[1].counts(), resamples)
    if comparison is None:
        file.write("2 - 1 -> n/a, the references have no words\n")
        return

    file.write(
        f"2 - 1 -> {comparison.difference:+.2f} points, {LEVEL} % interval {comparison.low:+.2f} "
        f"to {comparison.high:+.2f}, p = {comparison.p:.3f} ({resamples} paired resamples)\n"
    )


def as_dict(scores: Scores, resamples: int, other: Scores | None = None) -> dict[str, Any]:
    """Return totals, the counts of each utterance and each script, and the interval, for JSON.

    Args:
        resamples: for the interval; 0: None in its place.
        other: a second system on the same utterances, to compare with the first.
    """
    counts = scores.counts()
    utterance_records = [_counts_record(utterance) for utterance in counts]
    record: dict[str, Any] = {**_counts_record(scores.overall)}
    record["measure"] = scores.measure
    record["interval"] = interval(counts, resamples) if resamples and counts else None
    record["missing"] = scores.missing
    record["extra"] = scores.extra
    record["scripts"] = {name: _counts_record(total) for name, total in scores.scripts.items()}
    record["utterances"] = dict(zip(scores.utterances, utterance_records, strict=True))

    if other is not None:
        comparison = compare(counts, other.counts(), resamples)
        difference = (
            dict.fromkeys(Comparison._fields) if comparison is None else comparison._asdict()
        )
        record["compared"] = _counts_record(other.overall) | difference
    return record


def _counts_record(counts: Counts) -> dict[str, float | None]:
    """Return counts for JSON, with their sums and their rate; None: the rate is infinite."""
    rate = counts.rate if math.isfinite(counts.rate) else None
    return {**asdict(counts), "words": counts.words, "errors": counts.errors, "rate": rate}


def _write_totals(scores: Scores, file: IO[str], resamples: int) -> None:
    """Write what is missing, the overall error rate, and its interval."""
    if scores.missing:
        named = listed(scores.missing, _NAMED)
        file.write(
            f"Missing: {len(scores.missing)} without hypothesis, counted as deleted: {named}\n"
        )

    if scores.extra:
        named = listed(scores.extra, _NAMED)
        file.write(f"Extra: {len(scores.extra)} without reference, not scored: {named}\n")

    silence = [counts.inserted for counts in scores.counts() if not counts.words]
    if silence:
        wrong = sum(inserted > 0 for inserted in silence)
        file.write(
            f"Without words: {len(silence)} of {len(scores.utterances)} references; insertions "
            f"there: {sum(silence)}, in {wrong} of them\n"
        )

    # score.sh and addons/publish/run_report.py parse these lines.
    file.write(f"Counted -> {MEASURES[scores.measure]} ({scores.measure})\n")
    file.write(f"Overall -> {scores.overall}\n")

    ends = interval(scores.counts(), resamples) if resamples and scores.utterances else None
    if ends:
        low, high = ends
        file.write(
            f"{LEVEL} % interval -> {low:.2f} to {high:.2f} %, {resamples} resamples of the "
            "utterances\n"
        )


def _write_alignment(pairs: list[Pair], file: IO[str], label: str, form: ReportFormat) -> None:
    """Write the words of both sides above one another, padded to the same width."""
    words_per_line = form.words_per_line or max(len(pairs), 1)
    for start in range(0, max(len(pairs), 1), words_per_line):
        references: list[str] = []
        hypotheses: list[str] = []
        for pair in pairs[start : start + words_per_line]:
            reference, hypothesis = pair[0] or "", pair[1] or ""
            difference = _columns(reference) - _columns(hypothesis)
            # A negative number of paddings is none.
            references.append(reference + form.padding * -difference)
            hypotheses.append(hypothesis + form.padding * difference)
        file.write(f"lab{label}: {' '.join(references)}\nrec{label}: {' '.join(hypotheses)}\n\n")


def _columns(word: str) -> int:
    """Return the number of columns that a word takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(char) in "AFW" else 1 for char in word)
