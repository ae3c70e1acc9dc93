"""The right columns of the pages for those who come from elsewhere name what exists."""

import re
from pathlib import Path

import pytest
import yaml

import wenet_uio
import wenet_uio.dataset
from docs.generator.commands import ROOT, commands
from docs.generator.keys import sections
from tests.support.docs.blocks import blocks_of, pages
from wenet_uio.config import parse_config
from wenet_uio.config.choices import KNOWN_NAMES
from wenet_uio.config.source import SOURCES
from wenet_uio.search import known_modes

PAGES = [page for page in pages("coming-from") if page.stem != "index"]
WORDS = {
    "round_robin",
    "weighted",
    "lhotse_cuts",
    "space_to_unknown",
    "scaled_adam",
    "wenet_uio",
    "WENET_UIO_CACHE",
}
"""Names of values, of findings, and of the environment."""


@pytest.fixture(scope="module")
def known():
    found = commands()
    names = {Path(each.path).name for each in found} | {
        f"wenet_uio.bin.{Path(each.path).stem}" for each in found
    }
    names |= {
        name
        for each in found
        for options in each.groups.values()
        for option in options
        for name in option.names
    }
    names |= {name for keys in sections() for name in keys.fields()}
    names |= {*SOURCES, *known_modes(), *wenet_uio.__all__, *wenet_uio.dataset.__all__, *WORDS}
    names |= {name for group in KNOWN_NAMES.values() for name in group}
    return names | {"--nproc_per_node"}  # of torchrun


def right_column(page):
    """The cells of the column `here`, without lines of tables that have no such column."""
    place = None
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if not line.startswith("|"):
            place = None
        elif "here" in cells:
            place = cells.index("here")
        elif place and not set(cells[place]) <= set("- "):
            yield cells[place]


def names_in(code):
    """Names that look like those of commands, options, keys and files; words without a sign of it
    are left out.
    """
    for word in re.findall(r"--[\w.-]+|[A-Za-z_][\w./-]*", code):
        word = word.rstrip(".")
        if word.startswith("-") or "_" in word or word.endswith((".py", ".sh")):
            yield word


def exists(name, known):
    """Whether a name is known, or each part of such as `batch_conf.batch_type`. Paths of a recipe
    are examples.
    """
    if name.startswith(("local/", "data/", "conf/")):
        return True
    whole = "/" in name or name.startswith("wenet_uio.bin")
    parts = [name] if whole else re.split(r"(?<=_conf)\.", name)
    return all(part in known or (ROOT / part).exists() for part in parts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_in_the_right_column_exists(page, known):
    cells = list(right_column(page))
    assert len(cells) > 7
    names = [
        name for cell in cells for code in re.findall(r"`([^`]+)`", cell) for name in names_in(code)
    ]
    assert [name for name in names if not exists(name, known)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_is_not_needed_and_what_is_missing_and_converts_an_example(page):
    titles = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles[-3:] == ["Not needed", "Missing", "A worked conversion"]


def test_the_yaml_of_the_pages_is_valid():
    found = [(page, block) for page in PAGES for block in blocks_of(page) if block.kind == "yaml"]
    assert found
    for page, block in found:
        config = parse_config(yaml.safe_load(block.text), page.name)
        assert config.data


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_options_in_the_blocks_exist(page, known):
    for block in blocks_of(page):
        if block.kind == "bash":
            for name in re.findall(r"(?<!\S)(--\w[\w.]*|\w+\.py|\w+\.sh)(?!\S)", block.text):
                assert name in known or name == "--standalone", name
