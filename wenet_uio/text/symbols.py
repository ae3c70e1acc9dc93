"""Units files, files of non-language symbols, and the symbols with a fixed meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from wenet_uio.base.files import written_aside
from wenet_uio.text.table import numbered_lines

BLANK = "<blank>"
UNKNOWN = "<unk>"
SOS_EOS = "<sos/eos>"
SOS, EOS = "<sos>", "<eos>"
"""Names of tokenizer_conf.special_tokens; in most units files both are the unit <sos/eos>."""
WORD_START = "▁"
"""U+2581, the sign of a space between words, in units of characters and in sentencepiece models."""

_UNIT_LINE = re.compile(r"(.+?)[ \t]+(\d+)[ \t]*")


def read_symbols(path: str | Path) -> dict[str, int]:
    """Read a units file (lines `symbol id`) as {symbol: id}.

    Raises:
        ValueError: a line has another form, a symbol or an id occurs twice (the message has file
            and line), or the file is empty.
        FileNotFoundError: there is no such file.
    """
    if not Path(path).exists():
        raise FileNotFoundError(
            f"{path}: no such units file; copy that of the training, because other units give other "
            "words; for a new model write it with tools/make_dict.py"
        )

    symbols: dict[str, int] = {}
    line_of: dict[int, int] = {}
    for number, line in numbered_lines(path):
        if not line:
            continue

        match = _UNIT_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}:{number}: expected `symbol id`, found {line!r}")

        symbol, unit = match[1], int(match[2])
        if symbol in symbols:
            raise ValueError(
                f"{path}:{number}: symbol {symbol!r} is already on line {line_of[symbols[symbol]]}"
            )

        if unit in line_of:
            raise ValueError(f"{path}:{number}: id {unit} is already on line {line_of[unit]}")

        symbols[symbol] = unit
        line_of[unit] = number

    if not symbols:
        raise ValueError(f"{path}: the file has no units; write it with tools/make_dict.py")

    return symbols


def write_symbols(path: str | Path, tokens: Iterable[str]) -> dict[str, int]:
    """Write the units file of a vocabulary.

    The blank is 0, unknown 1, sos/eos 2; then come `tokens`, sorted by code point.

    Returns:
        {symbol: id}, as `read_symbols` returns it for the file.
    """
    fixed = [BLANK, UNKNOWN, SOS_EOS]
    units = fixed + sorted(set(tokens) - set(fixed))
    with written_aside(path, "w") as file:
        file.writelines(f"{symbol} {unit}\n" for unit, symbol in enumerate(units))
    return {symbol: unit for unit, symbol in enumerate(units)}


def read_non_lang_syms(path: str | Path) -> tuple[str, ...]:
    """Read a file of non-language symbols, one per line.

    Raises:
        ValueError: a symbol contains a space; the message has file and line.
    """
    symbols = []
    for number, line in numbered_lines(path):
        symbol = line.strip()
        if not symbol:
            continue
        if len(symbol.split()) != 1:
            raise ValueError(f"{path}:{number}: expected one symbol without spaces, found {line!r}")

        symbols.append(symbol)

    return tuple(symbols)
