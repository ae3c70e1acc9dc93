"""Reading yaml files that a user wrote: bounded in size, so that no file takes all memory or
time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from wenet_uio.config.base import ConfigError

MOST_BYTES = 1 << 24
"""Bytes of a file."""
MOST_VALUES = 1 << 20
"""Values of a file, where an alias counts as all the values that it stands for."""
PLAIN = re.compile(r"(?:(?:[\w \"#$%&'()*+,./:;<=@^~{}\[\]-]|(?<=\w)>){0,120}(?:\n|\Z))*", re.ASCII)
"""Short lines without what the parsers of PyYAML read differently: tabs, `!`, `?`, `|`, and `>`
before a value."""
MERGE = "tag:yaml.org,2002:merge"
"""Tag of the key `<<`."""


def read_yaml(path: str | Path) -> Any:
    """Read the only document of a yaml file.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8 or not yaml, or is too large; the message
            begins with `path`.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None

    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path}: more than {MOST_BYTES >> 20} MiB; is this a yaml file?")

    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 ({error.reason} at byte {error.start}); convert the file with iconv"
        ) from None

    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """Read the only document of a text; error messages begin with `where`.

    Raises:
        ConfigError: the text is not yaml, or stands for too many values.
    """
    try:
        loader, node = _compose_document(text)
        if node is None:
            return None

        if _count_values(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(
                f"more than {MOST_VALUES} values; do its aliases (*name) repeat each other?"
            )

        repeated_key = _find_repeated_key(node)
        if repeated_key:
            raise yaml.YAMLError(repeated_key)

        return loader.construct_document(node)
    except RecursionError:
        raise ConfigError(f"{where}: its values are nested too deeply") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # ValueError: 2024-13-01 is no date.
        raise ConfigError(f"{where}: not yaml: {' '.join(str(error).split())}") from None


def _compose_document(text: str) -> tuple[Any, yaml.Node | None]:
    """Return the loader of a text, and its only document.

    PyYAML's parser in C is five times as fast. It gets only texts that both parsers read alike and
    in which nothing can be nested so deeply that it would crash.
    """
    brackets = text.count("[") + text.count("{")
    is_flat = len(text) < 1 << 16 and brackets < 50
    if is_flat and hasattr(yaml, "CSafeLoader") and PLAIN.fullmatch(text):
        with suppress(yaml.YAMLError):  # the parser in Python then gives the message
            loader = yaml.CSafeLoader(text)
            return loader, loader.get_single_node()

    loader = yaml.SafeLoader(text)
    return loader, loader.get_single_node()


def _count_values(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of values that a node of yaml stands for, at most MOST_VALUES + 1.

    Values are counted before they are made: aliases of aliases, and merges of them, grow
    exponentially.

    Args:
        node: the node to count.
        sizes: {id of a node: its size} of the nodes counted so far, so that aliases take no time.
    """
    if id(node) not in sizes:
        # Until its parts are counted, the node counts as too large: an alias of itself is endless.
        sizes[id(node)] = MOST_VALUES + 1
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                parts += [key, value]

        size = 1 + sum(_count_values(part, sizes) for part in parts)
        sizes[id(node)] = min(size, MOST_VALUES + 1)
    return sizes[id(node)]


def _find_repeated_key(node: yaml.Node) -> str:
    """Return a key that a mapping has twice, with its lines; empty if there is none. PyYAML would
    take the last value.

    Several merges (`<<`) in one mapping are no error, because all of them count.
    """
    to_visit = [node]
    visited: set[int] = set()
    while to_visit:
        current = to_visit.pop()
        if id(current) in visited:  # an alias, maybe of a mapping that it is in
            continue

        visited.add(id(current))
        if isinstance(current, yaml.SequenceNode):
            to_visit += current.value
        elif isinstance(current, yaml.MappingNode):
            scalar_keys = [key for key, _ in current.value if isinstance(key, yaml.ScalarNode)]
            repeated_key = _first_repeated_key(scalar_keys)
            if repeated_key:
                return repeated_key

            for key, value in current.value:
                to_visit += [key, value]

    return ""


def _first_repeated_key(keys: Sequence[yaml.ScalarNode]) -> str:
    """Return the first key of a mapping that occurs a second time, with its lines; empty if there
    is none.
    """
    line_by_key: dict[tuple[str, str], int] = {}
    for node in keys:
        key = (node.tag, node.value)  # by the tag, the text "1" is another key than the number 1
        line = node.start_mark.line + 1
        if key in line_by_key and node.tag != MERGE:
            return (
                f"line {line}: the key {node.value} is given twice, first on line "
                f"{line_by_key[key]}; remove one of them"
            )
        line_by_key[key] = line

    return ""
