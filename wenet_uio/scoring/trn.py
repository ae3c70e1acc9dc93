"""Read references and hypotheses: Kaldi's `key text` lines, or the `text (key)` lines of sclite.

The content of the files says which of the two they are. A text of sclite may have alternations,
such as `i've { um / uh / @ } heard`, where @ is no word. A reference may have optional words, such
as `(uh)`, as sclite reads them with its option -D. The alternatives with the fewest errors count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from wenet_uio.text.table import numbered_lines, parse_table

_LINE = re.compile(r"(.*)\(([^\s()]*[-_0-9][^\s()]*)\)\s*")
"""Text and key. A key has a hyphen, an underscore or a digit, and `(laughs)` is none."""
_COMMENT = ";;"
_OPTIONAL = re.compile(r"\(([^\s()]+)\)")
_MARK = re.compile(r"[{}]|(?<!\S)(@|\(\S+\))(?!\S)")
"""What a text with alternatives has."""
_PIECE = re.compile(r"[{}]|[^\s{}]+")
_OR_PIECE = re.compile(r"/|[^/]+")
_OPEN, _OR, _CLOSE, _NO_WORD = "{", "/", "}", "@"

Texts = dict[str, str]
"""Key -> text."""
Network = list[list[tuple[int, "str | None"]]]
"""The ways to read a text. Each node has the arcs that lead to it: (node where the arc begins, its
word or None). Arcs begin at lower numbers; node 0 is the start, the last node is the end."""


class Reading(NamedTuple):
    """The texts of a file, read in one of the two formats."""

    texts: Texts
    is_trn: bool
    """True: sclite's format, whose texts may have alternations."""


class Transcripts(NamedTuple):
    """A file of texts that was read once."""

    readings: Sequence[Reading]
    """One for each format that the whole file may have; sclite's comes first."""
    flaw: str
    """Why it is not sclite's format, although most lines have a key at their end; else empty."""


class _Cost(NamedTuple):
    """Cost of an alignment: the first field in which two alignments differ says which is better."""

    errors: int
    weight: int
    """4 for each substitution, 3 for each deletion and insertion, as in sclite."""
    other_case: int
    """Pairs whose words differ in case."""

    def plus(self, errors: int, weight: int, other_case: int = 0) -> _Cost:
        """Return the cost with those of one more step."""
        return _Cost(self.errors + errors, self.weight + weight, self.other_case + other_case)


class _Step(NamedTuple):
    """The last step of an alignment."""

    cost: _Cost
    """Of the whole alignment."""
    before: tuple[int, int]
    """Where the step begins: a node of the reference and one of the hypothesis."""
    word: str | None
    recognised: str | None


def read_transcripts(path: str | Path) -> Transcripts:
    """Read a file in each format that it may have.

    Raises:
        ValueError: a key is there twice; the message has file and line.
    """
    lines = [(number, line) for number, line in numbered_lines(path) if line.strip()]
    spoken = [(number, line) for number, line in lines if not line.startswith(_COMMENT)]
    without_key = [number for number, line in spoken if not _LINE.fullmatch(line)]
    readings: list[Reading] = []
    flaw = ""
    if not without_key:
        readings.append(Reading(_trn_texts(path, spoken), is_trn=True))
    elif len(without_key) < len(spoken) / 2:
        flaw = f"{path}:{without_key[0]}: expected `text (key)`, as most lines of the file are"

    try:
        readings.append(Reading(parse_table(path, lines), is_trn=False))
    except ValueError as error:
        if not readings:
            raise ValueError(flaw or str(error)) from None

    return Transcripts(readings, flaw)


def paired(references: Transcripts, hypotheses: Transcripts) -> tuple[Texts, Texts]:
    """Return the texts of both files by key, in the formats that the files have.

    If only one of them can be sclite's, it is read in the format with which more keys are in both.
    Of alternations, the alternatives with the fewest errors are left.

    Raises:
        ValueError: a few lines of a file are not in sclite's format, while the other file is, or no
            key is in both files; or a brace of an alternation has no partner.
    """
    first, second = references.readings[0], hypotheses.readings[0]
    is_with_trn = first.is_trn or second.is_trn
    if not (first.is_trn and second.is_trn):
        first, second = max(
            product(references.readings, hypotheses.readings),
            key=lambda readings: len(readings[0].texts.keys() & readings[1].texts.keys()),
        )
    flaw = references.flaw or hypotheses.flaw
    if flaw and (is_with_trn or not first.texts.keys() & second.texts.keys()):
        raise ValueError(flaw)

    chosen_references, chosen_hypotheses = dict(first.texts), dict(second.texts)
    for key, reference in first.texts.items():
        hypothesis = second.texts.get(key, "")
        has_marks = first.is_trn and _MARK.search(reference)
        if not has_marks and not (second.is_trn and _MARK.search(hypothesis)):
            continue

        try:
            ways = _parse(reference, has_optional=True) if first.is_trn else _as_written(reference)
            heard = _parse(hypothesis) if second.is_trn else _as_written(hypothesis)
        except ValueError as error:
            raise ValueError(f"utterance {key}: {error}") from None

        words, recognised = _choose(ways, heard)
        chosen_references[key] = " ".join(words)
        if key in chosen_hypotheses:
            chosen_hypotheses[key] = " ".join(recognised)

    return chosen_references, chosen_hypotheses


def _trn_texts(path: str | Path, lines: Sequence[tuple[int, str]]) -> Texts:
    """Return the texts of numbered lines of sclite's format."""
    texts: Texts = {}
    for number, line in lines:
        text, key = _LINE.fullmatch(line).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if key in texts:
            raise ValueError(
                f"{path}:{number}: utterance {key!r} is there twice; remove one of the lines"
            )
        texts[key] = text.strip()

    return texts


def _as_written(text: str) -> Network:
    """Return the network of a text without alternatives."""
    return [[], *([(place, word)] for place, word in enumerate(text.split()))]


def _parse(text: str, *, has_optional: bool = False) -> Network:
    """Return the network of a text of sclite's format.

    Args:
        has_optional: words in parentheses are optional.

    Raises:
        ValueError: a brace has no partner.
    """
    network: Network = [[]]
    place = 0
    alternations: list[tuple[int, list[int]]] = []  # those that are open: start, ends so far
    for word in _split(text):
        optional = _OPTIONAL.fullmatch(word) if has_optional else None
        if word == _OPEN:
            alternations.append((place, []))
        elif word == _OR and alternations:
            start, ends = alternations[-1]
            ends.append(place)
            place = start
        elif word == _CLOSE:
            if not alternations:
                raise ValueError("`}` has no `{` before it; remove it, or write the alternation")
            _, ends = alternations.pop()
            network.append([(end, None) for end in (*ends, place)])
            place = len(network) - 1
        elif word != _NO_WORD:
            network.append([(place, word)])
            if optional:
                network[-1] = [(place, optional[1]), (place, None)]
            place = len(network) - 1

    if alternations:
        raise ValueError("`{` has no `}` after it; remove it, or end the alternation")

    return network


def _split(text: str) -> Iterator[str]:
    """Yield words, braces, and the slashes between braces, which need no spaces around them."""
    depth = 0
    for word in _PIECE.findall(text):
        depth += (word == _OPEN) - (word == _CLOSE)
        yield from _OR_PIECE.findall(word) if depth > 0 else [word]


def _choose(reference: Network, hypothesis: Network) -> tuple[list[str], list[str]]:
    """Return the words of both sides along the two ways with the fewest errors.

    Each cell of the table has the best way to a node of the reference and a node of the hypothesis:
    its cost, the cell before it, and the words of its last step.
    """
    table: dict[tuple[int, int], _Step] = {(0, 0): _Step(_Cost(0, 0, 0), (0, 0), None, None)}
    for cell in product(range(len(reference)), range(len(hypothesis))):
        if cell != (0, 0):
            steps = _steps_to(cell, reference, hypothesis, table)
            table[cell] = min(steps, key=lambda step: step.cost)

    words: list[str] = []
    recognised: list[str] = []
    cell = len(reference) - 1, len(hypothesis) - 1
    while cell != (0, 0):
        step = table[cell]
        if step.word is not None:
            words.append(step.word)
        if step.recognised is not None:
            recognised.append(step.recognised)
        cell = step.before

    return words[::-1], recognised[::-1]


def _steps_to(
    cell: tuple[int, int],
    reference: Network,
    hypothesis: Network,
    table: Mapping[tuple[int, int], _Step],
) -> Iterator[_Step]:
    """Yield the steps that end at a cell: a pair of words, or a word of one side, or no word."""
    row, column = cell
    for above, word in reference[row]:
        cost = table[above, column].cost
        yield _Step(cost if word is None else cost.plus(1, 3), (above, column), word, None)

    for left, recognised in hypothesis[column]:
        cost = table[row, left].cost
        yield _Step(cost if recognised is None else cost.plus(1, 3), (row, left), None, recognised)

    for (above, word), (left, recognised) in product(reference[row], hypothesis[column]):
        if word is not None and recognised is not None:
            cost = table[above, left].cost
            is_same = word.upper() == recognised.upper()
            paired = cost.plus(0, 0, int(word != recognised)) if is_same else cost.plus(1, 4)
            yield _Step(paired, (above, left), word, recognised)
