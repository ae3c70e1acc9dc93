"""The page of the first ten minutes shows what the first command prints."""

import re

from docs.generator.commands import commands
from tests.support.docs.blocks import DOCS

ROOT = DOCS.parent
PAGE = (DOCS / "ten-minutes.md").read_text(encoding="utf-8")
RECIPE = "examples/espeak/s0/run.sh"


def test_the_stages_of_the_page_are_those_of_the_recipe_in_their_order():
    recipe = (ROOT / RECIPE).read_text(encoding="utf-8")
    stages = re.findall(r'^if stage (-?\d) "(.+?)"', recipe, re.MULTILINE)
    assert len(stages) == 8
    printed = [
        f"stage {number}: {title}".replace("$data_type", "raw").replace("$dir", "exp/small")
        for number, title in stages
    ]
    assert re.findall(r"^ {4}(stage .+)$", PAGE, re.MULTILINE) == printed


def test_the_options_of_the_short_run_are_those_of_the_recipe():
    (command,) = (each for each in commands() if each.path == RECIPE)
    known = {name for group in command.groups.values() for option in group for name in option.names}
    (short,) = re.findall(r"short run, `([^`]+)`", PAGE)
    options = re.findall(r"--\w+", short)
    assert len(options) == 6
    assert set(options) <= known


def test_counts_of_the_output_add_up():
    (read,) = set(re.findall(r"(\d+) utterances: (\d+) read, (\d+) filtered, (\d+) bad", PAGE))
    utterances, *parts = map(int, read)
    assert sum(parts) == utterances
    assert f"data/train: {utterances} utterances" in PAGE
    rows = re.findall(r"^ {4}\w+(?: +[\d.]+){3} +(\d+) +(\d+) +(\d+) +(\d+)$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        tokens, *errors = map(int, row)
        assert sum(errors) <= tokens
