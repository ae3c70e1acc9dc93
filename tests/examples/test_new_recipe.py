"""A folder of recordings and a TSV become a recipe, which trains and scores without an edit."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest

from tests.examples.test_corpora import call, recipe
from wenet_uio.new_recipe import write_recipe

__all__ = ["recipe"]

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def test_fsdd_as_folder_and_tsv_is_trained_and_scored_without_an_edit(recipe, corpora, tmp_path):
    recordings = corpora / "fsdd" / "recordings"
    with open(tmp_path / "digits.tsv", "w", newline="") as file:
        table = csv.writer(file, delimiter="\t")
        table.writerow(("path", "sentence", "speaker", "split"))
        for digit, text in enumerate(DIGITS):
            for index, part in ((0, "test"), (5, "dev"), *((index, "train") for index in range(8, 12))):
                table.writerow((f"{digit}_theo_{index}.wav", text, "theo", part))
    recipe("custom")  # brings the rest of the repository beside it
    tool = ("--from", tmp_path / "digits.tsv", "--audio", recordings, "--examples", tmp_path / "examples")
    made = call(sys.executable, ROOT / "tools" / "new_recipe.py", "digits", *tool, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "40 train, 10 dev, 10 test utterances" in made.stdout
    folder = tmp_path / "examples" / "digits" / "s0"
    tiny = "max_epoch=1 encoder_conf.num_blocks=1 encoder_conf.output_size=32 encoder_conf.linear_units=32 "
    tiny += "decoder_conf.num_blocks=1 decoder_conf.linear_units=32"
    done = call(
        "bash", folder / "run.sh", "--nj", "1", "--stop_stage", "5", "--override", tiny, "--average_num", "1",
        "--decode_modes", "ctc_greedy_search attention_rescoring", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\w+) +([\d.]+) +(\d+) ", done.stdout, re.MULTILINE)
    assert [(mode, tokens) for mode, _, tokens in rows] == [("ctc_greedy_search", "10"), ("attention_rescoring", "10")]


def test_values_with_quotes_and_spaces_come_back_from_bash(tmp_path):
    folder = tmp_path / "examples" / "own" / "s0"
    value = "/corpora/it's a \\1 folder/a $x.tsv"
    write_recipe(ROOT / "examples" / "custom" / "s0", folder, "own", {"data": value, "form": "tsv"})
    (line,) = [line for line in (folder / "run.sh").read_text().splitlines() if line.startswith("data=")]
    assert call("bash", "-c", f'{line}\nprintf %s "$data"', cwd=tmp_path).stdout == value
    assert (folder / "run.sh").read_text().splitlines()[1].startswith("# own.")


def test_a_recipe_that_is_there_and_a_name_that_is_none_are_refused(tmp_path):
    template = ROOT / "examples" / "custom" / "s0"
    (tmp_path / "own").mkdir()
    with pytest.raises(ValueError, match="own is there already"):
        write_recipe(template, tmp_path / "own", "own", {})
    with pytest.raises(ValueError, match="expected letters"):
        write_recipe(template, tmp_path / "x" / "s0", "../x", {})
