"""A recipe starts from a trained model, and goes on through decoding, the report and the export."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import yaml

from tests.bin.test_train_from import digest
from tests.examples.test_corpora import call, recipe
from tests.support.models.small_whisper import write_openai
from tests.support.models.whisper_layouts import write_full_vocabulary
from tests.support.recipes import miniatures
from tests.support.train.training_corpus import CONFIG
from wenet_uio.config import load_config
from wenet_uio.models import build_model

__all__ = ["recipe"]

UNITS = ("<blank>", "<unk>", "NO", "YES", "<sos/eos>")
MODEL = {
    **CONFIG,
    "input_dim": 23,
    "tokenizer_conf": {"symbol_table_path": "units.txt", "split_with_space": True},
    "dataset_conf": {**CONFIG["dataset_conf"], "resample_conf": {"resample_rate": 8000}},
}


def write_model(folder: Path) -> Path:
    """A run of random weights."""
    folder.mkdir(parents=True)
    (folder / "units.txt").write_text("".join(f"{unit} {n}\n" for n, unit in enumerate(UNITS)))
    (folder / "train.yaml").write_text(yaml.safe_dump(MODEL))
    torch.manual_seed(1)
    weights = build_model(load_config(folder / "train.yaml", of_model=True)).state_dict()
    torch.save(weights, folder / "avg.pt")
    return folder


@pytest.mark.all
def test_all_stages_of_a_recipe_start_from_a_model_and_compare_it_with_the_result(
    recipe, tmp_path: Path
) -> None:
    home = recipe("yesno")
    expected = miniatures.yesno(tmp_path / "corpus")
    model = write_model(tmp_path / "models/small model")
    before = digest(model)
    mode = "ctc_greedy_search"
    command = (
        *("bash", "run.sh", "--stage", "0", "--from", model, "--data", tmp_path / "corpus"),
        *("--override", "max_epoch=1 dataset_conf.speed_perturb=false observe_interval=0"),
        *("--average_num", "1", "--decode_modes", mode, "--nj", "1"),
    )
    done = call(*command, cwd=home)
    assert done.returncode == 0, done.stderr
    for stage in ("mean and variance", "units"):
        line = next(line for line in done.stderr.splitlines() if stage in line)
        after = done.stderr.splitlines()[done.stderr.splitlines().index(line) + 1]
        assert "conf/finetune.yaml does not need this stage" in after

    run = home / "exp/finetune_small model"
    first = torch.load(run / "init.pt", weights_only=True)
    source = torch.load(model / "avg.pt", weights_only=True)
    assert all(torch.equal(first[name], source[name]) for name in source)
    for folder in ("before", "."):
        texts = (run / folder / mode / "text").read_text().splitlines()
        assert {line.split()[0] for line in texts} == expected["test"].keys()
        assert (run / folder / mode / "wer").read_text().count("Overall -> ") == 1

    report = (run / "report.html").read_text()
    assert f"before/{mode}" in report
    assert (run / "final.zip").is_file()
    assert digest(model) == before

    # Stage 5 again: the model before fine-tuning is decoded anew for other data or options alone.
    again = (*command[:2], "--stage", "5", "--stop_stage", "5", *command[4:])
    text = run / "before" / mode / "text"
    known = text.read_text()
    text.write_text("kept\n")
    assert call(*again, cwd=home).returncode == 0
    assert text.read_text() == "kept\n"
    assert call(*again, "--decode_options", "--beam_size 3", cwd=home).returncode == 0
    assert text.read_text() == known

    # Each of the two models has a language model of its own units, anew for another order.
    for order in ("2", "3"):
        modes = ("--decode_modes", "ctc_prefix_beam_search")
        done = call(*again, "--lm_order", order, *modes, cwd=home)
        assert done.returncode == 0, done.stderr
        for folder in ("before", "."):
            arpa = (run / folder / "lm.arpa").read_text()
            assert max(re.findall(r"^ngram (\d)=", arpa, re.MULTILINE)) == order


@pytest.mark.all
def test_all_stages_of_a_recipe_start_from_a_whisper_which_the_runtime_of_wenet_does_not_run(
    recipe, tmp_path: Path
) -> None:
    home = recipe("yesno")
    miniatures.yesno(tmp_path / "corpus")
    source = write_openai(tmp_path / "models/whisper.pt")
    write_full_vocabulary(tmp_path / "models/multilingual.tiktoken")
    done = call(
        *("bash", "run.sh", "--stage", "0", "--from", source, "--data", tmp_path / "corpus"),
        *("--override", "max_epoch=1 observe_interval=0", "--average_num", "1", "--nj", "1"),
        *("--language", "en", "--before", "false", "--onnx", "true"),
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    run = home / "exp/finetune_whisper"
    assert (
        f"no {run.relative_to(home)}/final.zip: WeNet's runtime starts the decoder" in done.stderr
    )
    assert (run / "attention/wer").is_file()
    assert (run / "onnx/offline/tokens.txt").is_file()
    assert not (run / "final.zip").exists()
