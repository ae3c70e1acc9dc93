"""A two-language list with a tokenizer for each language: trained, moved, recognised, fine-tuned
and checked.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.config import load_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import parse_raw_line
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.sharding import ShardOptions
from wenet_uio.text.tokenizer import build_tokenizer

UNITS = {"en": "abc", "xx": "cba"}
"""Both languages have the same letters, in another order."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lists whose lines are in turn of one and the other language; one line of train.list states
    none.
    """
    write_corpus(tmp_path)
    languages = {}
    for language, letters in UNITS.items():
        lines = [
            f"{unit} {place}\n"
            for place, unit in enumerate(["<blank>", "<unk>", "<sos/eos>", *letters])
        ]
        (tmp_path / f"{language}.txt").write_text("".join(lines))
        languages[language] = {"tokenizer": "char", "symbol_table_path": f"{language}.txt"}
    for name in ("train", "cv"):
        lines = [json.loads(line) for line in (tmp_path / f"{name}.list").read_text().splitlines()]
        for number, line in enumerate(lines):
            line["lang"] = list(UNITS)[number % 2]
        if name == "train":
            del lines[0]["lang"]
        (tmp_path / f"{name}.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    keys = {"tokenizer": "aggregate", "tokenizer_conf": {"languages": languages}, "max_epoch": 1}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump({**CONFIG, **keys}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_two_language_list_is_trained_moved_recognised_and_fine_tuned(home, call):
    lists = ("--cv_data", "cv.list", "--device", "cpu")
    assert (
        call(
            "train",
            "--config",
            "train.yaml",
            "--train_data",
            "train.list",
            *lists,
            "--model_dir",
            "exp",
        )
        == 0
    )
    written = yaml.safe_load(Path("exp/train.yaml").read_text())
    assert (written["output_dim"], written["ctc_conf"]["ctc_blank_id"]) == (14, 12)
    assert written["tokenizer_conf"]["special_tokens"] == {"<sos>": 13, "<eos>": 13}
    assert Path("exp/xx.units.txt").read_text() == Path("xx.txt").read_text()
    bad = [json.loads(line) for line in Path("exp/bad_samples.jsonl").read_text().splitlines()]
    assert [(each["key"], each["reason"]) for each in bad] == [("train0", "unknown_language")]

    for name in ("en.txt", "xx.txt"):
        Path(name).unlink()
    shutil.move("exp", "moved")
    tokenizer = build_tokenizer(load_config("moved/train.yaml", of_model=True))
    assert tokenizer.of({"lang": "xx"}).tokenize("a")[1] == [6 + 5]
    assert tokenizer.of({"lang": "en"}).tokenize("a")[1] == [3]

    model = ("--config", "moved/train.yaml", "--checkpoint", "moved/epoch_0.pt", "--device", "cpu")
    modes = ("--modes", "ctc_greedy_search", "attention", "--result_dir", "results")
    assert call("recognize", *model, "--test_data", "train.list", "--data_type", "raw", *modes) == 0
    said = Path("results/ctc_greedy_search/text").read_text().splitlines()
    assert len(said) == 22  # texts without a language are recognised too
    assert set("".join(line.partition(" ")[2] for line in said).replace("<unk>", "")) <= set("abc ")
    aligned = ("--data_list", "cv.list", "--data_type", "raw", "--result_dir", "aligned")
    assert call("align", *model, *aligned) == 0

    ctc = ("--modes", "ctc_prefix_beam_search", "--result_dir", "phrases_used")
    Path("phrases").write_text("ab\nca\n")
    phrases = ("--context_list_path", "phrases")
    assert (
        call("recognize", *model, "--test_data", "cv.list", "--data_type", "raw", *ctc, *phrases)
        == 0
    )

    tuned = (
        "--config",
        "moved/train.yaml",
        "--checkpoint",
        "moved/epoch_0.pt",
        "--model_dir",
        "tuned",
    )
    assert call("train", *tuned, "--train_data", "train.list", *lists) == 0
    assert Path("tuned/en.units.txt").is_file()


def test_tokens_are_counted_by_the_tokenizer_of_the_language_that_a_source_states(home, call):
    text = Path("train.list").read_text()
    Path("train.list").write_text(text.replace(', "lang": "en"', "").replace(', "lang": "xx"', ""))
    conf = {"batch_type": "static", "batch_size": 4, "batch_tokens": 40}
    config = yaml.safe_load(Path("train.yaml").read_text())
    config["dataset_conf"] |= {"batch_conf": conf, "filter_conf": {"max_tps": 100}}
    config["data"] = [
        {"type": "raw", "data_list": "train.list", "tags": {"lang": "xx"}},
        {"type": "txt", "paths": "texts.txt", "language": "en"},
    ]
    Path("texts.txt").write_text("abcab\n" * 8)
    Path("train.yaml").write_text(yaml.safe_dump(config))
    torch.manual_seed(0)
    assert (
        call(
            "train",
            "--config",
            "train.yaml",
            "--cv_data",
            "cv.list",
            "--device",
            "cpu",
            "--model_dir",
            "exp",
        )
        == 0
    )
    assert (
        not Path("exp/bad_samples.jsonl").exists() or not Path("exp/bad_samples.jsonl").read_text()
    )


def test_shards_keep_the_language_of_every_utterance(home):
    lines = [parse_raw_line(line) for line in Path("cv.list").read_text().splitlines()]
    assert make_shard_list(lines, "shards", "shard.list", ShardOptions(per_shard=2)) == []
    config = load_config("train.yaml")
    tokenizer = build_tokenizer(config)
    labels = {}
    for kind, path in (("raw", "cv.list"), ("shard", "shard.list")):
        loader = build_loader(path, kind, config, tokenizer, training=False)
        labels[kind] = {
            key: row.tolist()
            for batch in loader
            for key, row in zip(batch.keys, batch.target, strict=True)
        }
    assert labels["raw"] == labels["shard"]
    assert labels["raw"]["cv0"] == [3, 3]
    assert labels["raw"]["cv1"] == [6 + 4, 6 + 4]
