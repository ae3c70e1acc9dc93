"""The folder of a run is moved to another place, the corpus of its units is deleted, and every command still works."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import wenet_uio
from tests.train.support.training_corpus import CONFIG, write_corpus

FILES = {"units.txt": "dict/units.txt", "global_cmvn": "dict/cmvn.json", "non_lang_syms.txt": "dict/symbols"}


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch):
    def run(command: str, *arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", [command, *map(str, arguments)])
        return import_module(f"wenet_uio.bin.{command}").main() or 0

    return run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose config names its files relative to the recipe; lists with absolute paths are elsewhere."""
    data, home = tmp_path / "data", tmp_path / "home"
    data.mkdir()
    write_corpus(data)
    (home / "dict").mkdir(parents=True)
    (data / "units.txt").rename(home / "dict/units.txt")
    stats = {"mean_stat": [100.0] * 23, "var_stat": [1100.0] * 23, "frame_num": 10}
    (home / "dict/cmvn.json").write_text(json.dumps(stats))
    (home / "dict/symbols").write_text("<unk>\n")
    keys = {
        "tokenizer_conf": {"symbol_table_path": "dict/units.txt", "non_lang_syms_path": "dict/symbols"},
        "cmvn": "global_cmvn",
        "cmvn_conf": {"cmvn_file": "dict/cmvn.json"},
        "max_epoch": 1,
    }
    (home / "train.yaml").write_text(yaml.safe_dump(CONFIG | keys))
    monkeypatch.chdir(home)
    return home


def test_a_moved_run_recognises_transcribes_aligns_exports_and_is_fine_tuned(home, tmp_path, call, monkeypatch):
    lists = ("--train_data", "../data/train.list", "--cv_data", "../data/cv.list", "--device", "cpu")
    assert call("train", "--config", "train.yaml", *lists, "--model_dir", "exp") == 0
    for name, source in FILES.items():
        assert Path("exp", name).read_bytes() == Path(source).read_bytes()
    written = yaml.safe_load(Path("exp/train.yaml").read_text())
    assert written["tokenizer_conf"]["symbol_table_path"] == "units.txt"
    assert written["cmvn_conf"]["cmvn_file"] == "global_cmvn"
    more = ("--override_config", "max_epoch=2")
    assert call("train", "--config", "train.yaml", *lists, "--model_dir", "exp", *more) == 0  # resumes
    assert yaml.safe_load(Path("exp/train.yaml").read_text())["tokenizer_conf"]["symbol_table_path"] == "units.txt"
    assert call("train", "--config", "exp/train.yaml", *lists, "--model_dir", "exp", *more) == 0  # with its own yaml

    elsewhere = tmp_path / "elsewhere"
    shutil.copytree("exp", elsewhere / "model", symlinks=True)
    home.rename(tmp_path / "renamed")
    monkeypatch.chdir(elsewhere)
    model = ("--config", "model/train.yaml", "--checkpoint", "model/final.pt")
    data = "../data/cv.list"
    mode = "ctc_greedy_search"
    call("recognize", *model, "--test_data", data, "--modes", mode, "--result_dir", "out", "--device", "cpu")
    assert len(Path("out", mode, "text").read_text().splitlines()) == 5
    call("align", *model, "--data_list", data, "--result_dir", "aligned", "--device", "cpu")
    assert len(Path("aligned/scores").read_text().splitlines()) == 5
    assert call("transcribe", "--model", "model", "../data/cv0.wav", "--output_dir", "out", "--device", "cpu") == 0
    call("export_jit", *model, "--output_file", "model/final.zip", "--check_data", data, "--num_check", 2)
    tuned = ("--config", "model/train.yaml", "--checkpoint", "model/final.pt", "--model_dir", "tuned")
    assert call("train", *tuned, "--train_data", "../data/train.list", *lists[2:]) == 0
    assert Path("tuned/units.txt").read_bytes() == Path("model/units.txt").read_bytes()
    transcripts = [
        wenet_uio.load_model(path, device="cpu").transcribe("../data/cv0.wav") for path in ("model", "model/final.zip")
    ]
    assert transcripts[0].text == transcripts[1].text


def test_a_moved_run_exports_to_onnx(home, tmp_path, call, monkeypatch):
    pytest.importorskip("onnxruntime")
    lists = ("--train_data", "../data/train.list", "--cv_data", "../data/cv.list", "--device", "cpu")
    call("train", "--config", "train.yaml", *lists, "--model_dir", "exp", "--override_config", "epoch_steps=1")
    shutil.move("exp", tmp_path / "moved")
    shutil.rmtree("dict")
    monkeypatch.chdir(tmp_path)
    model = ("--config", "moved/train.yaml", "--checkpoint", "moved/final.pt")
    check = ("--check_data", "data/cv.list", "--num_check", 2, "--runtimes", "wenet", "--int8_tolerance", 100)
    call("export_onnx", *model, "--output_dir", "moved/onnx", *check)
    assert wenet_uio.load_model("moved/onnx").transcribe("data/cv0.wav").seconds > 0
