"""Blocks of code on pages of the manual, and the commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^\n]+) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    kind: str
    """bash, python or yaml."""
    text: str
    why_not_run: str | None

    @property
    def file(self) -> str | None:
        """The file that the first line names in a comment: `# conf/train.yaml`."""
        match = re.match(r"# (\S+\.(?:yaml|py))\n", self.text)
        return match[1] if match else None


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [Block(each["kind"], each["text"], each["why"]) for each in BLOCK.finditer(text)]


def commands_in(text: str) -> list[list[str]]:
    """The command lines of a bash block without loops and pipes, as words."""
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def pages(folder: str) -> list[Path]:
    """The pages in a folder of the manual."""
    return sorted((DOCS / folder).glob("*.md"))
