"""The blocks of the tutorials run, or name recipes and options that exist."""

import re
import shutil
from pathlib import Path

import pytest

from docs.generator.commands import ROOT, commands
from tests.docs.test_how_to import folder, run_command
from tests.support import preloaded
from tests.support.docs.blocks import blocks_of, commands_in, pages

__all__ = ["folder"]

TUTORIALS = [page for page in pages("tutorials") if page.stem != "index"]


def run_blocks(page, **more):
    """Run the blocks of a page in their order; `more` has words that a command gets in this
    test.
    """
    blocks = [block for block in blocks_of(page) if block.why_not_run is None]
    assert blocks
    for block in blocks:
        assert block.kind == "bash" or block.file, block.text
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        for words in commands_in(block.text) if block.kind == "bash" else ():
            if words[0] == "python":
                assert preloaded.run(words[1:]).returncode == 0, words
            elif words[0] not in (".", "cd"):  # the test stands in the folder of the recipe
                assert run_command([*words, *more.get(words[0].removesuffix(".py"), ())]) == 0, (
                    words
                )


@pytest.mark.parametrize("name", ["own-corpus", "cluster"])
def test_the_blocks_of_a_tutorial_run(name, folder, capsys):
    page = next(page for page in TUTORIALS if page.stem == name)
    shutil.copy("conf/train.yaml", "conf/train_conformer.yaml")
    make_list = [
        "make_raw_list.py",
        *(f"data/train/{file}" for file in ("wav.scp", "text", "data.list")),
    ]
    assert run_command(make_list) == 0  # as stage 3 of a recipe does
    run_blocks(page, new_recipe=("--examples", str(folder / "examples")))
    if name == "own-corpus":
        assert "24 train, 6 dev, 6 test utterances" in capsys.readouterr().out
        assert (folder / "examples/tones/s0/run.sh").is_file()


def test_recipes_in_the_tutorials_and_their_options_exist():
    known = {command.path: command for command in commands()}
    lines = [line for page in TUTORIALS for block in blocks_of(page) for line in commands_in(block.text)
             if block.kind == "bash"]  # fmt: skip
    calls = [words for words in lines if words[0] == "bash"]
    assert len(calls) > 8
    for words in calls:
        command = known[words[1].replace("tones", "custom")]
        options = {
            name for group in command.groups.values() for option in group for name in option.names
        }
        assert {word for word in words if word.startswith("--")} <= options, words


def test_every_block_is_run_or_says_why_not_and_the_tests_that_it_names_exist():
    for page in TUTORIALS:
        text = page.read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(blocks_of(page)), page
        for block in blocks_of(page):
            assert block.kind in ("bash", "python")
            for path in re.findall(r"tests/[\w/]+(?:\.py)?", block.why_not_run or ""):
                assert (ROOT / path).exists(), path
