"""The folder of a run is moved to another place, the corpus of its units is deleted, and every
command still works.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import soundfile
import yaml

import wenet_uio
from tests.support.train.training_corpus import CONFIG, write_corpus

FILES = {
    "units.txt": "dict/units.txt",
    "global_cmvn": "dict/cmvn.json",
    "non_lang_syms.txt": "dict/symbols",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose config names its files relative to the recipe; lists with absolute paths are
    elsewhere.
    """
    data, home = tmp_path / "data", tmp_path / "home"
    data.mkdir()
    write_corpus(data)
    (home / "dict").mkdir(parents=True)
    (data / "units.txt").rename(home / "dict/units.txt")
    stats = {"mean_stat": [100.0] * 23, "var_stat": [1100.0] * 23, "frame_num": 10}
    (home / "dict/cmvn.json").write_text(json.dumps(stats))
    (home / "dict/symbols").write_text("<unk>\n")
    keys = {
        "encoder_conf": CONFIG["encoder_conf"] | {"use_dynamic_chunk": True, "causal": True},
        "tokenizer_conf": {
            "symbol_table_path": "dict/units.txt",
            "non_lang_syms_path": "dict/symbols",
        },
        "cmvn": "global_cmvn",
        "cmvn_conf": {"cmvn_file": "dict/cmvn.json"},
        "max_epoch": 1,
    }
    (home / "train.yaml").write_text(yaml.safe_dump(CONFIG | keys))
    monkeypatch.chdir(home)
    return home


def streamed(model: str, path: str) -> wenet_uio.Transcript:
    """Pass a recording to a stream in pieces of 0.1 s."""
    samples, rate = soundfile.read(path, dtype="float32")
    stream = wenet_uio.load_model(model, device="cpu").stream(sample_rate=rate)
    for start in range(0, len(samples), rate // 10):
        stream.accept(samples[start : start + rate // 10])
        assert isinstance(stream.partial, str)
    return stream.finish()


def test_a_moved_run_recognises_transcribes_aligns_exports_and_is_fine_tuned(
    home, tmp_path, call, monkeypatch
):
    lists = (
        "--train_data",
        "../data/train.list",
        "--cv_data",
        "../data/cv.list",
        "--device",
        "cpu",
    )
    assert call("train", "--config", "train.yaml", *lists, "--model_dir", "exp") == 0
    for name, source in FILES.items():
        assert Path("exp", name).read_bytes() == Path(source).read_bytes()
    written = yaml.safe_load(Path("exp/train.yaml").read_text())
    assert written["tokenizer_conf"]["symbol_table_path"] == "units.txt"
    assert written["cmvn_conf"]["cmvn_file"] == "global_cmvn"
    more = ("--override_config", "max_epoch=2")
    # Resumes
    assert call("train", "--config", "train.yaml", *lists, "--model_dir", "exp", *more) == 0
    assert (
        yaml.safe_load(Path("exp/train.yaml").read_text())["tokenizer_conf"]["symbol_table_path"]
        == "units.txt"
    )
    # With its own yaml
    assert call("train", "--config", "exp/train.yaml", *lists, "--model_dir", "exp", *more) == 0

    elsewhere = tmp_path / "elsewhere"
    shutil.copytree("exp", elsewhere / "model", symlinks=True)
    home.rename(tmp_path / "renamed")
    monkeypatch.chdir(elsewhere)
    model = ("--config", "model/train.yaml", "--checkpoint", "model/final.pt")
    data = "../data/cv.list"
    mode = "ctc_greedy_search"
    call(
        "recognize",
        *model,
        "--test_data",
        data,
        "--modes",
        mode,
        "--result_dir",
        "out",
        "--device",
        "cpu",
    )
    assert len(Path("out", mode, "text").read_text().splitlines()) == 5
    call("align", *model, "--data_list", data, "--result_dir", "aligned", "--device", "cpu")
    assert len(Path("aligned/scores").read_text().splitlines()) == 5
    assert (
        call(
            "transcribe",
            "--model",
            "model",
            "../data/cv0.wav",
            "--output_dir",
            "out",
            "--device",
            "cpu",
        )
        == 0
    )
    call(
        "export_jit",
        *model,
        "--output_file",
        "model/final.zip",
        "--check_data",
        data,
        "--num_check",
        2,
    )
    tuned = (
        "--config",
        "model/train.yaml",
        "--checkpoint",
        "model/final.pt",
        "--model_dir",
        "tuned",
    )
    assert call("train", *tuned, "--train_data", "../data/train.list", *lists[2:]) == 0
    assert Path("tuned/units.txt").read_bytes() == Path("model/units.txt").read_bytes()
    transcripts = [
        wenet_uio.load_model(path, device="cpu").transcribe("../data/cv0.wav")
        for path in ("model", "model/final.zip")
    ]
    assert transcripts[0].text == transcripts[1].text
    assert streamed("model", "../data/cv0.wav").seconds == transcripts[0].seconds
    assert "| training | ../data/train.list | 22 |" in Path("model/README.md").read_text()


@pytest.mark.all
def test_a_moved_run_exports_to_onnx(home, tmp_path, call, monkeypatch):
    pytest.importorskip("onnxruntime")
    lists = (
        "--train_data",
        "../data/train.list",
        "--cv_data",
        "../data/cv.list",
        "--device",
        "cpu",
    )
    call(
        "train",
        "--config",
        "train.yaml",
        *lists,
        "--model_dir",
        "exp",
        "--override_config",
        "epoch_steps=1",
    )
    shutil.move("exp", tmp_path / "moved")
    shutil.rmtree("dict")
    monkeypatch.chdir(tmp_path)
    model = ("--config", "moved/train.yaml", "--checkpoint", "moved/final.pt")
    check = (
        "--check_data",
        "data/cv.list",
        "--num_check",
        2,
        "--runtimes",
        "wenet",
        "--int8_tolerance",
        100,
    )
    call("export_onnx", *model, "--output_dir", "moved/onnx", *check)
    assert wenet_uio.load_model("moved/onnx").transcribe("data/cv0.wav").seconds > 0


@pytest.mark.parametrize(
    "name", ["u2pp_conformer", pytest.param("squeezeformer", marks=pytest.mark.all)]
)
def test_a_folder_in_wenets_layout_recognises_transcribes_streams_and_exports(
    golden, name, tmp_path, call, monkeypatch, caplog
):
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(golden / name, "theirs")
    Path("theirs/golden.pt").unlink()
    text = Path("theirs/train.yaml").read_text()
    for file, path in (
        ("units.txt", "data/dict/lang_char.txt"),
        ("global_cmvn", "data/train/global_cmvn"),
    ):
        text = text.replace(f": {file}\n", f": {path}\n")
    Path("theirs/train.yaml").write_text(
        text.replace("cmvn: data/train/global_cmvn", "cmvn: global_cmvn")
    )
    model = ("--config", "theirs/train.yaml", "--checkpoint", "theirs/final.pt")
    found = wenet_uio.load_model("theirs", device="cpu").transcribe(
        "cv0.wav", mode="attention_rescoring", pause=0
    )
    assert (
        "theirs/train.yaml: tokenizer_conf.symbol_table_path data/dict/lang_char.txt: theirs/units"
        in caplog.text
    )
    modes = ("ctc_greedy_search", "attention_rescoring")
    call(
        "recognize",
        *model,
        "--test_data",
        "cv.list",
        "--modes",
        *modes,
        "--result_dir",
        "out",
        "--device",
        "cpu",
    )
    texts = dict(
        line.partition(" ")[::2] for line in Path("out", modes[1], "text").read_text().splitlines()
    )
    assert len(texts) == 5
    assert texts["cv0"] == found.text
    assert streamed("theirs", "cv0.wav").seconds == found.seconds
    call(
        "export_jit",
        *model,
        "--output_file",
        "theirs/final.zip",
        "--check_data",
        "cv.list",
        "--num_check",
        2,
    )
    exported = wenet_uio.load_model("theirs/final.zip").transcribe(
        "cv0.wav", mode="attention_rescoring", pause=0
    )
    assert exported.text == found.text
