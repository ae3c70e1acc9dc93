"""`average_model.py --dev_data`: how much of a fine-tuning is taken, so that it never makes a model
worse.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.models.small_whisper import write_openai
from tests.support.models.whisper_layouts import write_full_vocabulary
from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.scoring.normaliser import load_normaliser
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.words import WordRules
from wenet_uio.text.table import read_table

ROOT = Path(__file__).parents[2]
FINE_TUNING = {
    "dataset_conf": {"batch_conf": {"batch_type": "static", "batch_size": 8}},
    "scheduler_conf": {"warmup_steps": 2},
    "optim_conf": {"lr": 0.0005},
    "max_epoch": 2,
    "observe_interval": 0,
    "report": False,
}
"""Gentle: the base knows the corpus."""
STILL = {"dropout_rate": 0.0, "positional_dropout_rate": 0.0}
ATTENTION_STILL = {"self_attention_dropout_rate": 0.0, "src_attention_dropout_rate": 0.0}


BASE = {
    "model_conf": {"ctc_weight": 0.0},
    "encoder_conf": {**CONFIG["encoder_conf"], **STILL, "attention_dropout_rate": 0.0},
    "decoder_conf": {**CONFIG["decoder_conf"], **STILL, **ATTENTION_STILL},
    "optim_conf": {"lr": 0.02},
    "scheduler_conf": {"warmup_steps": 10},
    "max_epoch": 10,
}
"""Learns the corpus of tones in two seconds."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of tones, `base`, a run that recognises all of them, and `tuned`, which starts from it."""
    folder = write_corpus(tmp_path_factory.mktemp("base"), **BASE, save_interval=None)
    keys = ("dataset_conf.spec_aug=false", "dataset_conf.speed_perturb=false")
    train(folder, "base", "--override_config", *keys, config="train.yaml")
    (folder / "finetune.yaml").write_text(yaml.safe_dump(FINE_TUNING))
    train(folder, "tuned", "--from", "base")
    return folder


@pytest.fixture
def home(base: Path, tmp_path: Path) -> Path:
    return shutil.copytree(base, tmp_path / "home", symlinks=True)


def train(folder: Path, run: str, *options: str, config: str = "finetune.yaml") -> str:
    """Train, and return standard error."""
    data = ("--config", config, "--train_data", "train.list", "--cv_data", "cv.list")
    command = [ROOT / "wenet_uio/bin/train.py", *data, "--model_dir", run, "--device", "cpu"]
    done = preloaded.run([*map(str, command), *options], cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stderr


def average(folder: Path, run: str = "tuned", *options: object) -> tuple[str, str]:
    """Average a run against its start -> standard output and error."""
    chosen = ("--src_path", run, "--dst_model", f"{run}/avg.pt", "--val_best")
    command = ["-m", "wenet_uio.bin.average_model", *chosen, "--dev_data", "cv.list", *options]
    done = preloaded.run(command, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def error_counts(folder: Path, weights: str, mode: str = "attention") -> list[int]:
    """Decode the validation set with recognize.py -> errors as written and normalised."""
    model = (
        "--config",
        str(Path(weights).parent / "train.yaml"),
        "--checkpoint",
        weights,
        "--device",
        "cpu",
    )
    data = ("--test_data", "cv.list", "--result_dir", "out", "--modes", mode)
    done = preloaded.run(["-m", "wenet_uio.bin.recognize", *model, *data], cwd=folder)
    assert done.returncode == 0, done.stderr

    found = read_table(folder / "out" / mode / "text")
    lines = [json.loads(line) for line in (folder / "cv.list").read_text().splitlines()]
    expected = {line["key"]: line["txt"] for line in lines}
    counts = []
    for normalise in (str, load_normaliser("basic")):
        references, texts = (
            {key: normalise(text) for key, text in table.items()} for table in (expected, found)
        )
        counts.append(score(references, texts, WordRules()).overall.errors)
    return counts


def spoil(folder: Path, epoch: int, seed: int = 1) -> None:
    """Ruin the weights of an epoch, and record a validation loss that is the lowest of all."""
    torch.manual_seed(seed)
    path = folder / f"tuned/epoch_{epoch}.pt"
    weights = torch.load(path, weights_only=True)
    for name, value in weights.items():
        if value.is_floating_point():
            weights[name] = value + 2 * value.std(correction=0) * torch.randn_like(value)
    torch.save(weights, path)
    record = yaml.safe_load(path.with_suffix(".yaml").read_text())
    record["loss_dict"] = dict.fromkeys(record["loss_dict"], 1e-3)
    path.with_suffix(".yaml").write_text(yaml.safe_dump(record))


def known_shares(folder: Path, run: str = "tuned") -> dict[str, Any]:
    return yaml.safe_load((folder / run / "avg.shares.yaml").read_text())


def load(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)


def test_the_average_of_a_fine_tuning_is_not_worse_than_its_start_where_validation_is_deceived(
    home: Path,
) -> None:
    spoil(home, 1)
    before = error_counts(home, "tuned/init.pt")
    alone = error_counts(home, "tuned/epoch_1.pt")
    assert sum(alone) > sum(before)

    printed, warned = average(home, "tuned", "--num", 1)
    after = error_counts(home, "tuned/avg.pt")
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert "tuned: fine-tuning makes the model worse on cv.list: as written" in warned
    assert "5 of 5 utterances of cv.list (seed 1), attention" in warned
    assert re.search(r"mean of 1; \d+ % of the fine-tuning: as written .* normalised", printed)
    record = known_shares(home)
    assert [entry["share"] for entry in record["errors"]] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [sum_of(record["errors"][0][kind]) for kind in KINDS] == before
    assert [sum_of(record["errors"][4][kind]) for kind in KINDS] == alone
    assert record["share"] < 1


KINDS = ("as_written", "normalised")


def sum_of(counts: dict[str, int]) -> int:
    return counts["substituted"] + counts["deleted"] + counts["inserted"]


@pytest.mark.all
def test_a_second_average_decodes_nothing_and_other_weights_are_decoded_again(home: Path) -> None:
    first, _ = average(home)
    record = home / "tuned/avg.shares.yaml"
    written = record.stat().st_mtime_ns
    weights = load(home / "tuned/avg.pt")
    assert average(home)[0] == first
    assert record.stat().st_mtime_ns == written
    again = load(home / "tuned/avg.pt")
    assert all(torch.equal(again[name], value) for name, value in weights.items())

    # One that was stopped goes on.
    values = known_shares(home)
    values["errors"] = values["errors"][:2]
    record.write_text(yaml.safe_dump(values))
    assert average(home)[0] == first
    assert len(known_shares(home)["errors"]) == 5

    spoil(home, 1)
    assert average(home)[0] != first
    # An average without the comparison leaves no errors of other weights behind.
    command = ["--src_path", "tuned", "--dst_model", "tuned/avg.pt"]
    assert preloaded.run(["-m", "wenet_uio.bin.average_model", *command], cwd=home).returncode == 0
    assert not record.exists()


@pytest.mark.parametrize("ruin", ["rate", pytest.param("texts", marks=pytest.mark.all)])
def test_a_training_that_is_made_to_fail_ends_with_the_model_before_it(home: Path, ruin) -> None:
    if ruin == "rate":
        stderr = train(home, "other", "--from", "base", "--override_config", "optim_conf.lr=0.3")
    else:
        path = home / "train.list"
        for right, wrong in (("aa", "xx"), ("bb", "aa"), ("xx", "bb")):
            path.write_text(path.read_text().replace(f'"txt": "{right}"', f'"txt": "{wrong}"'))
        stderr = train(home, "other", "--from", "base", "--override_config", "optim_conf.lr=0.005")
    assert "worse than before fine-tuning: cv loss" in stderr
    average(home, "other")
    before, after = (error_counts(home, f"other/{name}.pt") for name in ("init", "avg"))
    assert after[0] <= before[0]
    assert after[1] <= before[1]


def test_a_start_with_other_units_is_no_candidate_and_one_line_says_so(home: Path) -> None:
    units = ["<blank>", "<unk>", "c", "a", "b", "y", "<sos/eos>"]
    (home / "other.txt").write_text("".join(f"{unit} {n}\n" for n, unit in enumerate(units)))
    train(home, "other", "--from", "base", "--symbol_table", "other.txt")
    printed, _ = average(home, "other")
    assert (
        "mean of 2; the model before fine-tuning has other units, so it is not compared" in printed
    )
    assert not (home / "other/avg.shares.yaml").exists()
    (start,) = yaml.safe_load((home / "other/environment.yaml").read_text())
    assert start["other_units"] is True


@pytest.mark.parametrize("merge", [False, pytest.param(True, marks=pytest.mark.all)])
def test_low_rank_weights_are_weighed_too(home: Path, merge: bool) -> None:
    keys = ("use_lora=true", "only_optimize_lora=true", "lora_conf.lora_rank=2")
    train(home, "other", "--from", "base", "--override_config", *keys, "optim_conf.lr=0.005")
    average(home, "other", *(["--merge_lora"] if merge else []))
    record = known_shares(home, "other")
    assert [sum_of(record["errors"][0][kind]) for kind in KINDS] == error_counts(
        home, "base/final.pt"
    )
    assert any("lora_B" in name for name in load(home / "other/avg.pt")) != merge


@pytest.mark.all
def test_a_new_ctc_layer_stays_whole_and_modes_with_ctc_do_not_count(home: Path) -> None:
    train(home, "other", "--from", "base", "--override_config", "model_conf.ctc_weight=0.3")
    average(home, "other", "--num", 1)
    record = known_shares(home, "other")
    assert record["compared"]["mode"] == "attention"
    mean = load(home / "other/avg.pt")["ctc.ctc_lo.weight"]
    epochs = [load(home / f"other/epoch_{epoch}.pt")["ctc.ctc_lo.weight"] for epoch in (0, 1)]
    assert any(torch.equal(mean, layer) for layer in epochs)


def test_a_run_from_scratch_has_no_start_to_compare_with(home: Path) -> None:
    run = ("--src_path", "base", "--dst_model", "avg.pt", "--dev_data", "cv.list")
    done = preloaded.run(["-m", "wenet_uio.bin.average_model", *run], cwd=home)
    assert done.returncode == 1
    assert done.stderr.startswith("error: base: this run did not start from a trained model, so")
    assert done.stderr.count("\n") == 1


@pytest.mark.all
def test_of_a_long_validation_set_some_200_utterances_are_decoded(home: Path) -> None:
    lines = [json.loads(line) for line in (home / "cv.list").read_text().splitlines()]
    with (home / "long.list").open("w") as file:
        for number in range(1003):
            line = {**lines[number % 5], "key": f"u{number:04}"}
            file.write(f"{json.dumps(line)}\n")
    average(home, "tuned", "--dev_data", "long.list")
    compared = known_shares(home)["compared"]
    assert compared["of"] == 1003
    assert 150 <= compared["utterances"] <= 210

    # Weights that are worse than the start are not decoded to the end.
    spoil(home, 1)
    average(home, "tuned", "--num", 1, "--dev_data", "long.list")
    start, *_, end = known_shares(home)["errors"]
    words = [sum(each["as_written"].values()) for each in (start, end)]
    assert words[0] == compared["utterances"]
    assert 0 < words[1] < 20


@pytest.mark.all
def test_a_whisper_is_compared_with_its_start(home: Path) -> None:
    source = write_openai(home / "sources/whisper.pt")
    write_full_vocabulary(home / "sources/multilingual.tiktoken")
    train(home, "other", "--from", str(source), "--override_config", "max_epoch=1")
    average(home, "other", "--language", "en")
    record = known_shares(home, "other")
    assert record["compared"]["mode"] == "attention"
    assert record["compared"]["normaliser"] == "english"
    start, taken = record["errors"][0], record["errors"][round(4 * record["share"])]
    assert all(sum_of(taken[kind]) <= sum_of(start[kind]) for kind in KINDS)


@pytest.mark.all
def test_a_published_whisper_whose_training_is_made_to_fail_is_not_worse_than_before(
    published_whisper: Path, corpora: Path, tmp_path: Path
) -> None:
    """Thirty times the usual rate; the validation loss falls all the same."""
    speech = corpora / "speechocean762"
    texts = read_table(speech / "train/text")
    waves = {path.stem: path for path in (speech / "WAVE").rglob("*.WAV")}
    known = [key for key in texts if key in waves][:24]
    for name, keys in (("cv", known[:6]), ("train", known[6:])):
        lines = [{"key": key, "wav": str(waves[key]), "txt": texts[key].lower()} for key in keys]
        (tmp_path / f"{name}.list").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "finetune.yaml").write_text(yaml.safe_dump(FINE_TUNING))

    train(
        tmp_path,
        "tuned",
        "--from",
        str(published_whisper),
        "--override_config",
        "optim_conf.lr=0.0003",
    )
    average(tmp_path, "tuned", "--language", "en")
    record = known_shares(tmp_path)
    start, taken = record["errors"][0], record["errors"][round(4 * record["share"])]
    assert all(sum_of(taken[kind]) <= sum_of(start[kind]) for kind in KINDS)
    assert start["normalised"]["correct"] > sum_of(start["normalised"])  # the start is no ruin
