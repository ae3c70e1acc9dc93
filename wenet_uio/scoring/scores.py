"""Error rates of recognised text, and the report on them that WeNet's users know."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

from wenet_uio.cli import listed
from wenet_uio.scoring.bootstrap import LEVEL, compare, interval
from wenet_uio.scoring.wer import Counts, Pair, align
from wenet_uio.scoring.words import WordRules, script_of

_RULE = "=" * 75
_NAMED = 10
"""Keys that a line of the report names at most."""


@dataclass
class Scores:
    """Alignments of a test set with their totals."""

    utterances: dict[str, list[Pair]] = field(default_factory=dict)
    """Alignment by key, in the order of the references."""
    overall: Counts = field(default_factory=Counts)
    scripts: dict[str, Counts] = field(default_factory=dict)
    """Totals of the words of each script; an inserted word counts for its own."""
    missing: list[str] = field(default_factory=list)
    """Keys without hypothesis: every word of their references is deleted."""
    extra: list[str] = field(default_factory=list)
    """Keys of hypotheses without reference: not scored."""


def score(references: Mapping[str, str], hypotheses: Mapping[str, str], rules: WordRules) -> Scores:
    """Align every reference with the hypothesis of the same key.

    Raises:
        ValueError: when no key has both, which is a mix-up of files rather than a bad recogniser.
    """
    if references and not references.keys() & hypotheses.keys():
        raise ValueError(
            f"no utterance is in both files: references begin with {next(iter(references))}, "
            f"hypotheses with {next(iter(hypotheses), 'nothing')}"
        )
    scores = Scores(extra=[key for key in hypotheses if key not in references])
    pairs_of: dict[str, list[Pair]] = {}
    for key, text in references.items():
        if key not in hypotheses:
            scores.missing.append(key)
        pairs = align(rules(text), rules(hypotheses.get(key, "")))
        scores.utterances[key] = pairs
        scores.overall += Counts.of(pairs)
        for pair in pairs:
            pairs_of.setdefault(script_of(pair[1] if pair[0] is None else pair[0]), []).append(pair)
    scores.scripts = {script: Counts.of(pairs) for script, pairs in pairs_of.items()}
    return scores


def write_report(
    scores: Scores,
    file: IO[str],
    *,
    verbose: int = 1,
    words_per_line: int | None = None,
    padding: str = " ",
    resamples: int = 0,
) -> None:
    """Write the totals, after the alignment of each utterance when verbose is 1, with keys in it when 2.

    `resamples` above 0 put the interval of the error rate beneath.
    """
    if verbose:
        for key, pairs in scores.utterances.items():
            file.write(f"\nutt: {key}\nWER: {Counts.of(pairs)}\n")
            _write_alignment(pairs, file, f"({key})" if verbose > 1 else "", words_per_line or len(pairs), padding)
        file.write(f"{_RULE}\n\n")
    if scores.missing:
        named = listed(scores.missing, _NAMED)
        file.write(f"Missing: {len(scores.missing)} without hypothesis, counted as deleted: {named}\n")
    if scores.extra:
        file.write(f"Extra: {len(scores.extra)} without reference, not scored: {listed(scores.extra, _NAMED)}\n")
    file.write(f"Overall -> {scores.overall}\n")
    if resamples and scores.utterances:
        low, high = interval(_counts(scores), resamples)
        file.write(f"{LEVEL} % interval -> {low:.2f} to {high:.2f} %, {resamples} resamples of the utterances\n")
    if verbose:
        for script, counts in scores.scripts.items():
            file.write(f"{script} -> {counts}\n")
        file.write(f"\n{_RULE}\n")


def write_comparison(first: tuple[str, Scores], second: tuple[str, Scores], file: IO[str], resamples: int) -> None:
    """Write the totals of two systems, each with its name, and what sets the second apart from the first."""
    for number, (name, scores) in enumerate((first, second), 1):
        file.write(f"{number}: {name} -> {scores.overall}\n")
    found = compare(_counts(first[1]), _counts(second[1]), resamples)
    file.write(
        f"2 - 1 -> {found.difference:+.2f} points, {LEVEL} % interval {found.low:+.2f} to {found.high:+.2f}, "
        f"p = {found.p:.3f} ({resamples} paired resamples)\n"
    )


def _counts(scores: Scores) -> list[Counts]:
    return [Counts.of(pairs) for pairs in scores.utterances.values()]


def _write_alignment(pairs: list[Pair], file: IO[str], label: str, words_per_line: int, padding: str) -> None:
    """The words of both sides above one another, padded to the same width."""
    for start in range(0, max(len(pairs), 1), max(words_per_line, 1)):
        lines: tuple[list[str], list[str]] = ([], [])
        for pair in pairs[start : start + words_per_line]:
            widths = [_width(word or "") for word in pair]
            for line, word, width in zip(lines, pair, widths, strict=True):
                line.append((word or "") + padding * (max(widths) - width))
        file.write(f"lab{label}: {' '.join(lines[0])}\nrec{label}: {' '.join(lines[1])}\n\n")


def _width(word: str) -> int:
    """Columns that a word takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(char) in "AFW" else 1 for char in word)
