"""The commands that pages show are parsed as a user types them, each against the config it names."""

from pathlib import Path

import pytest

from docs.generator.commands import ROOT
from tests.support.docs.command_lines import (
    commands_by_path,
    config_that_takes,
    lines_of,
    overrides_of,
    refusal,
)

PAGES = (
    *("README.md", "README.zh.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*/*/README.md"),
    *("wenet_uio/**/README.md", "lab/benchmark/*.md", "lab/guarantees/*.md"),
)
"""Pages that say how something is done now; CHANGELOG.md is about the past."""


def pages() -> list[Path]:
    """All these pages."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


@pytest.mark.parametrize(
    "page",
    [page for page in pages() if any(True for _ in lines_of(page.read_text(encoding="utf-8")))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_commands_of_a_page_are_taken(page):
    assert refused_on(page, page.read_text(encoding="utf-8")) == {}


def refused_on(page: Path, text: str) -> dict[str, str]:
    """{command: why it is not taken}."""
    reasons = {" ".join(line.words): refusal(line, page) for line in lines_of(text)}
    return {line: reason for line, reason in reasons.items() if reason}


def test_overrides_in_sentences_fit_a_config():
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    found = [(page, given) for page, text in texts.items() for given in overrides_of(text)]
    assert len(found) >= 5
    assert [each for each in found if config_that_takes(each[1]) is None] == []


@pytest.mark.parametrize("command", commands_by_path(), ids=lambda command: command.path)
def test_the_examples_in_the_help_of_a_command_are_taken(command):
    text = command.text.replace("%(prog)s", command.name)
    assert refused_on(ROOT / command.path, text) == {}


def test_most_commands_of_the_pages_are_found():
    texts = [page.read_text(encoding="utf-8") for page in pages()]
    assert sum(1 for text in texts for _ in lines_of(text)) > 200
