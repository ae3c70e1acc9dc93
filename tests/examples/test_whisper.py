"""The five commands of the page about Whisper lead from a Whisper of OpenAI to a scored test set."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.examples.test_corpora import call, recipe
from tests.examples.test_new_recipe import DIGITS
from tests.support.docs.blocks import blocks_of
from tests.support.models.whisper_layouts import (
    random_whisper,
    save_openai,
    write_full_vocabulary,
)

__all__ = ["recipe"]

PAGE = Path(__file__).parents[2] / "docs/how-to/whisper.md"
TINY = [
    *(
        "encoder_conf.output_size=16",
        "encoder_conf.attention_heads=2",
        "encoder_conf.linear_units=64",
    ),
    *(
        "encoder_conf.num_blocks=2",
        "decoder_conf.attention_heads=4",
        "decoder_conf.linear_units=64",
    ),
    *(
        "decoder_conf.num_blocks=1",
        "max_epoch=1",
        "epoch_steps=2",
        "observe_interval=0",
        "report=false",
    ),
]


def commands() -> list[list[str]]:
    """The commands of the page that fine-tune Whisper with a config."""
    (block,) = (block for block in blocks_of(PAGE) if "run.sh" in block.text)
    return [shlex.split(line) for line in block.text.splitlines()]


@pytest.mark.all
def test_each_of_the_five_commands_does_what_the_page_says(recipe, corpora: Path) -> None:
    home = recipe("custom").parents[2]
    save_openai(random_whisper(), home / "small.pt")
    # In the place of the package openai-whisper
    write_full_vocabulary(home / "multilingual.tiktoken")
    (home / "recordings").symlink_to(corpora / "fsdd/recordings")
    with open(home / "transcripts.tsv", "w") as file:
        file.write("path\tsentence\tspeaker\tsplit\n")
        for digit, text in enumerate(DIGITS):
            for index, part in ((0, "test"), (5, "dev"), (8, "train")):
                file.write(f"{digit}_theo_{index}.wav\t{text}\ttheo\t{part}\n")
    install, convert, *stages = commands()
    assert (install[0], len(stages)) == ("pip", 3)
    done = call(*convert, cwd=home)
    assert done.returncode == 0, done.stderr
    for command in stages:
        tiny = (
            "--override",
            " ".join(TINY),
            "--nj",
            "1",
            "--average_num",
            "1",
            "--decode_modes",
            "attention",
        )
        done = call(*command, *tiny, cwd=home)
        assert done.returncode == 0, done.stderr
    assert re.search(r"^attention +[\d.]+ +[\d.]+ +10 ", done.stdout, re.MULTILINE)
    folder = home / "examples/custom/s0"
    assert not (folder / "data/train/global_cmvn").exists()
    assert not (folder / "data/dict").exists()
    vocabulary = (folder / "exp/whisper/whisper.vocab").read_bytes()
    assert vocabulary == (home / "multilingual.tiktoken").read_bytes()
