"""Markdown of plain texts, such as the docstrings and the help of options."""

from __future__ import annotations

import re
from collections.abc import Sequence

CODE = re.compile(r"(`[^`]*`|https?://[^\s)>,]+)")
"""What stays as it is between escaped texts."""


def escaped(text: str) -> str:
    """Return the text on one line, with the characters that Markdown and HTML would interpret
    escaped.

    Code in single backticks stays code, and an address becomes a link.
    """
    parts = CODE.split(" ".join(text.split()))
    shown = [
        re.sub(r"([\\*_\[\]<|#])", r"\\\1", part).replace("\\<", "&lt;") for part in parts[::2]
    ]
    shown += [""]
    code = [part if part[0] == "`" else f"<{part}>" for part in parts[1::2]] + [""]

    return "".join(each for pair in zip(shown, code, strict=False) for each in pair)


def paragraphs(text: str) -> str:
    """Return a docstring: paragraphs are escaped, and indented blocks stay blocks of code."""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            blocks.append("\n".join(["```text", *(line[4:] for line in lines), "```"]))
        else:
            blocks.append(escaped(block))

    return "\n\n".join(blocks)


def code(text: object) -> str:
    """Return the text as code in a cell of a table, where a | in code is no border; nothing of an
    empty text.
    """
    return f"`{text}`" if str(text) else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
