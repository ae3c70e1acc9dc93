"""Patterns of paths in lists and in the sources of mixtures: numeric ranges, alternatives and
globs.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
from collections.abc import Iterator

from wenet_uio.dataset.formats.errors import ListError, MissingFileError
from wenet_uio.dataset.storage import objects

RANGE = re.compile(r"(?:\{|\(|\[|<|_OP_)(\d+)\.\.(\d+)(?:\}|\)|\]|>|_CL_)")
BRACES = re.compile(r"(?:\{|_OP_)([^{}]*?)(?:\}|_CL_)")
"""`{a,b}`: alternatives, if there is a comma between the braces."""
MOST_DIGITS = 18
"""Digits of a number in a range or of a shard_id; an index holds no larger numbers."""
MOST_PATHS = 1 << 22
"""Paths that one pattern may stand for; a longer list is a mistake in the pattern."""


def expand(pattern: str) -> list[str]:
    """Expand a pattern to paths or URIs: ranges `{1..3}`, alternatives `{a,b}`, globs.

    The name of an existing file is no pattern.

    Raises:
        MissingFileError: a glob matches no file. ListError: the pattern cannot be used.
    """
    if "\0" in pattern:
        raise ListError(f"{pattern!r} holds a NUL character")

    has_alternatives = "," in pattern and _first_alternatives(pattern) is not None
    if has_alternatives or RANGE.search(pattern):
        path = objects.without_scheme(pattern)
        if os.path.exists(path):  # noqa: PTH110
            return [pattern]

    paths: list[str] = []
    for name in _expand_ranges(pattern):
        for alternative in _expand_alternatives(name):
            paths.extend(_files_of(alternative))

    # A range inside of an alternative gives the other alternatives once for each number.
    return list(dict.fromkeys(paths)) if "," in pattern else paths


def _expand_alternatives(name: str) -> Iterator[str]:
    """Yield the names that a name with alternatives stands for.

    Raises:
        ListError: they are too many.
    """
    if "," not in name:
        yield name
        return

    count = math.prod(braces[1].count(",") + 1 for braces in BRACES.finditer(name))
    if count > MOST_PATHS:
        raise ListError(
            f"{name[:80]}: its alternatives stand for {count} paths; {MOST_PATHS} is the limit"
        )

    braces = _first_alternatives(name)
    if braces is None:
        yield name
        return

    head, tail = name[: braces.start()], name[braces.end() :]
    for alternative in braces[1].split(","):
        yield from _expand_alternatives(head + alternative + tail)


def _first_alternatives(name: str) -> re.Match[str] | None:
    return next((braces for braces in BRACES.finditer(name) if "," in braces[1]), None)


def _files_of(name: str) -> list[str]:
    """Return the paths that a name without ranges stands for: itself, or the matches of a glob."""
    remote = objects.is_remote(name)
    path = name if remote else objects.without_scheme(name)
    # ? and [ have another meaning in URIs
    if not any(mark in name for mark in ("*" if remote else "*?[")):
        return [name]
    if not remote and os.path.exists(path):  # noqa: PTH110
        return [name]

    matches = objects.matches(name) if remote else sorted(glob.glob(path))  # noqa: PTH207 - a pattern may be absolute
    if not matches:
        raise MissingFileError(f"{name} matches no file")

    return matches


def _expand_ranges(pattern: str) -> Iterator[str]:
    """Yield the names that a pattern with ranges of numbers stands for; the first number of a range
    gives the number of digits.

    Raises:
        ListError: a range is empty, or they are too many.
    """
    # RANGE has two groups: literal, first, last, literal, first, last, …, literal
    pieces = RANGE.split(pattern)
    literals, bounds = pieces[::3], list(zip(pieces[1::3], pieces[2::3], strict=True))
    if any(max(map(len, pair)) > MOST_DIGITS for pair in bounds):
        raise ListError(f"a range of {pattern[:80]} has a number of more than {MOST_DIGITS} digits")

    ranges = [range(int(first), int(last) + 1) for first, last in bounds]
    count = math.prod(map(len, ranges))
    if not 0 < count <= MOST_PATHS:
        problem = "end before they begin"
        if count:
            problem = f"stand for {count} paths; {MOST_PATHS} is the limit"
        raise ListError(f"{pattern}: its ranges {problem}")

    widths = [len(first) for first, _ in bounds]
    for numbers in itertools.product(*ranges):
        named = zip(numbers, widths, literals[1:], strict=True)
        yield literals[0] + "".join(
            str(number).zfill(width) + literal for number, width, literal in named
        )
