"""make_units.sh: units of the whole text, and of each language for the tokenizer aggregate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wenet_uio.config import parse_config
from wenet_uio.text.tokenizer import build_tokenizer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def call(tmp_path):
    """Call make_units.sh in a folder with two English and two Chinese utterances."""
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/train/text").write_text(
        "a hello world\nb 你好\nc we love\nd 好\n", encoding="utf-8"
    )
    (tmp_path / "data/train/utt2lang").write_text("a en\nb zh\nc en\nd zh\n")
    path = f"{ROOT / 'tools'}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(*options: str) -> subprocess.CompletedProcess:
        command = ["make_units.sh", "--dict", "data/dict", *options]
        environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


def test_each_language_has_units_of_its_own_that_the_aggregate_tokenizer_reads(
    call, tmp_path, monkeypatch
):
    done = call("--langs", "en:14 zh")
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    languages = {
        "en": {"tokenizer": "sentencepiece", "model_path": "data/dict/en.model"},
        "zh": {"tokenizer": "char", "symbol_table_path": "data/dict/zh.units.txt"},
    }
    config = parse_config(
        {"tokenizer": "aggregate", "tokenizer_conf": {"languages": languages}}, "test"
    )
    tokenizer = build_tokenizer(config)
    assert tokenizer.vocab_size == 14 + 5 + 2
    assert tokenizer.detokenize(tokenizer.of({"language": "zh"}).tokenize("你好")[1]) == "你好"


def test_a_language_without_texts_is_refused(call):
    done = call("--langs", "fr")
    assert done.returncode == 1
    assert (
        "--langs fr: no text in data/train/text has the language fr in data/train/utt2lang"
        in done.stderr
    )
