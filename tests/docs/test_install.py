"""The page of installation names what the project has."""

import re

from tests.support.docs.blocks import DOCS
from wenet_uio.commands import COMMANDS

PAGE = (DOCS / "install.md").read_text(encoding="utf-8")
PROJECT = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")


def test_the_table_has_every_extra():
    cells = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    extras = re.findall(r"^optional-dependencies\.(\w+)", PROJECT, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(extras)


def test_the_commands_and_versions_of_the_page_exist():
    named = re.findall(r"^wenet-uio ([a-z]+ [a-z]+)", PAGE, re.MULTILINE)
    assert named == ["recipe new"]
    assert set(named) <= set(COMMANDS)
    assert 'requires-python = ">=3.10"' in PROJECT
    assert "names torch 2.11.0 and the same release of torchaudio" in PAGE
    assert "torch==2.11.0" in (DOCS.parent / "requirements.txt").read_text(encoding="utf-8")
