"""`train.py --from`: a run that starts from a trained model, of this package or of another."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.models.funasr_layout import write_funasr
from tests.support.models.small_whisper import write_hugging_face, write_openai
from tests.support.models.whisper_layouts import write_full_vocabulary
from tests.support.train.training_corpus import CONFIG, write_corpus
from tests.tools.test_recipe_verbs import call
from wenet_uio.bin import average_model

ROOT = Path(__file__).parents[2]
FINE_TUNING = {
    "dataset_conf": {"batch_conf": {"batch_type": "static", "batch_size": 8}},
    "optim_conf": {"lr": 0.0001},
    "scheduler_conf": {"warmup_steps": 2},
    "max_epoch": 1,
    "observe_interval": 0,
    "report": False,
}
"""A fine-tuning in the form of conf/finetune.yaml."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a corpus and `base`, the folder of a run."""
    folder = write_corpus(tmp_path_factory.mktemp("trained"))
    done = train(folder, "base", "--override_config", "max_epoch=1", config="train.yaml")
    assert done[0] == 0, done[1]
    (folder / "finetune.yaml").write_text(yaml.safe_dump(FINE_TUNING))
    return folder


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    """A copy of `trained`."""
    return shutil.copytree(trained, tmp_path / "home", symlinks=True)


def train(
    folder: Path,
    run: str,
    *options: str,
    config: str = "finetune.yaml",
    ranks: int = 1,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Exit status and standard error."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    command = [
        *(launch if ranks > 1 else []),
        str(ROOT / "wenet_uio/bin/train.py"),
        *("--config", config, "--train_data", "train.list", "--cv_data", "cv.list"),
        *("--model_dir", run, "--device", "cpu"),
        *options,
    ]
    done = preloaded.run(command, cwd=folder, env=environment)
    return done.returncode, done.stderr


def digest(path: Path) -> dict[str, str]:
    """{file: digest of its content and time of its last change}."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {
        str(file): f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_mtime_ns}"
        for file in files
    }


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)


def test_a_run_from_another_has_its_model_and_its_units_and_validates_it_before_the_first_step(
    home: Path,
) -> None:
    before = digest(home / "base")
    status, stderr = train(home, "tuned", "--from", "base")
    assert status == 0, stderr
    assert digest(home / "base") == before
    assert "before fine-tuning: cv loss" in stderr
    tuned, base = (
        yaml.safe_load((home / run / "train.yaml").read_text()) for run in ("tuned", "base")
    )
    for name in (
        "encoder",
        "encoder_conf",
        "decoder_conf",
        "model_conf",
        "input_dim",
        "output_dim",
    ):
        assert tuned[name] == base[name], name
    assert tuned["dataset_conf"]["fbank_conf"] == base["dataset_conf"]["fbank_conf"]
    assert tuned["optim_conf"]["lr"] == 0.0001
    assert tuned["dataset_conf"]["batch_conf"]["batch_size"] == 8
    first, last = weights(home / "tuned/init.pt"), weights(home / "base/final.pt")
    assert all(torch.equal(first[name], last[name]) for name in last)
    record = yaml.safe_load((home / "tuned/init.yaml").read_text())
    of_base = yaml.safe_load((home / "base/epoch_0.yaml").read_text())
    assert record["epoch"] == -1
    assert record["loss_dict"]["loss"] == pytest.approx(of_base["loss_dict"]["loss"], rel=1e-4)
    (start,) = yaml.safe_load((home / "tuned/environment.yaml").read_text())
    assert start["from"] == "base"


def test_a_complete_config_gives_the_training_only_and_the_log_says_what_it_leaves_out(
    home: Path,
) -> None:
    other = {**CONFIG, "encoder_conf": {**CONFIG["encoder_conf"], "output_size": 32}}
    (home / "other.yaml").write_text(yaml.safe_dump({**other, "max_epoch": 1}))
    status, stderr = train(home, "tuned", "--from", "base/epoch_0.pt", config="other.yaml")
    assert status == 0, stderr
    assert (
        "other.yaml: left out, because the model has its own: encoder, encoder_conf, decoder, "
        "decoder_conf, tokenizer, tokenizer_conf, dataset_conf.fbank_conf" in stderr
    )
    tuned = yaml.safe_load((home / "tuned/train.yaml").read_text())
    assert tuned["encoder_conf"]["output_size"] == 16


def test_other_units_get_a_new_output_layer_with_the_rows_of_the_common_units(home: Path) -> None:
    units = ["<blank>", "<unk>", "c", "z", "a", "b", "y", "<sos/eos>"]
    (home / "other.txt").write_text(
        "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    )
    status, stderr = train(home, "tuned", "--from", "base", "--symbol_table", "other.txt")
    assert status == 0, stderr
    assert "other units: the output layer is new; 6 of its 8 units are units of the model" in stderr
    new, old = weights(home / "tuned/init.pt"), weights(home / "base/final.pt")
    former = {"<blank>": 0, "<unk>": 1, "a": 2, "b": 3, "c": 4, "<sos/eos>": 5}
    for name in ("ctc.ctc_lo.weight", "ctc.ctc_lo.bias", "decoder.embed.0.weight"):
        assert len(new[name]) == len(units)
        for place, unit in enumerate(units):
            same = unit in former and torch.equal(new[name][place], old[name][former[unit]])
            assert same == (unit in former), (name, unit)
    assert torch.equal(new["encoder.after_norm.weight"], old["encoder.after_norm.weight"])


def test_a_run_resumes_without_the_model_that_it_began_from_and_refuses_another(home: Path) -> None:
    assert train(home, "tuned", "--from", "base")[0] == 0
    (home / "base").rename(home / "elsewhere")
    status, stderr = train(home, "tuned", "--from", "base", "--override_config", "max_epoch=2")
    assert status == 0, stderr
    assert "resuming after step 3, in epoch 1" in stderr
    changes = re.findall("changed since the run began: (.*)", stderr)
    assert changes == [
        "max_epoch: 1 -> 2"
    ]  # the units are now those of the run, with equal contents
    assert stderr.count("before fine-tuning") == 0
    assert (home / "tuned/epoch_1.pt").exists()
    for options in (["--from", "elsewhere"], []):
        status, stderr = train(home, "tuned", *options, "--override_config", "max_epoch=3")
        assert status == 1
        assert "error: tuned: this run began from base, not from" in stderr


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.all)])
def test_a_new_ctc_layer_learns_the_units_of_the_texts_alone_also_when_the_run_resumes(
    home: Path, ranks: int
) -> None:
    source = write_openai(home / "sources/whisper.pt")
    write_full_vocabulary(home / "sources/multilingual.tiktoken")
    lines = [json.loads(line) for line in (home / "train.list").read_text().splitlines()]
    (home / "text").write_text("".join(f"{line['key']} {line['txt']}\n" for line in lines))
    keys = ("model_conf.ctc_weight=0.3", "ctc_texts=text", "ctc_detach_steps=0")
    options = ("--from", str(source), "--override_config", *keys)

    status, stderr = train(home, "tuned", *options, "max_steps=2", ranks=ranks)
    assert status == 0, stderr
    assert re.search(r"CTC learns 3 of \d+ units, those of text", stderr), stderr
    (home / "text").unlink()
    status, stderr = train(home, "tuned", *options, "max_epoch=2", ranks=ranks)
    assert status == 0, stderr
    assert "CTC learns" not in stderr

    first, last = weights(home / "tuned/init.pt"), weights(home / "tuned/final.pt")
    used = first["ctc.ctc_lo.bias"] > -5000
    assert used.sum() == 4  # and blank
    for name in ("ctc.ctc_lo.weight", "ctc.ctc_lo.bias"):
        change = (last[name] - first[name]).abs().flatten(1 if "weight" in name else 0)
        moved = change.amax(1) > 1e-6 if "weight" in name else change > 1e-6
        assert torch.equal(moved, used), name


@pytest.mark.all
def test_a_run_from_a_ctc_layer_of_some_units_learns_those_of_its_own_texts(home: Path) -> None:
    source = write_openai(home / "sources/whisper.pt")
    write_full_vocabulary(home / "sources/multilingual.tiktoken")
    lines = [json.loads(line) for line in (home / "train.list").read_text().splitlines()]
    texts = {line["key"]: line["txt"] for line in lines}
    (home / "text").write_text("".join(f"{key} {text}\n" for key, text in texts.items()))
    (home / "first").write_text("a a\n")
    of_ctc = ("--override_config", "model_conf.ctc_weight=0.3", "max_epoch=1")
    status, stderr = train(
        home, "first_run", "--from", str(source), *of_ctc, "ctc_texts=first", "ctc_detach_steps=0"
    )
    assert status == 0, stderr
    assert "training has utterances without a CTC loss: a unit of their text" in stderr
    assert re.search(r"validation: \d+ utterances without a CTC loss", stderr), stderr

    status, stderr = train(home, "no_texts", "--from", "first_run", *of_ctc)
    assert status == 1
    assert re.search(r"error: the CTC of this model learned 1 of \d+ units \(ctc_texts\)", stderr)
    assert not (home / "no_texts/init.pt").exists()
    status, stderr = train(
        home,
        "no_ctc",
        "--from",
        "first_run",
        "--override_config",
        "model_conf.ctc_weight=0",
        "max_epoch=1",
    )
    assert status == 0, stderr

    status, stderr = train(home, "second_run", "--from", "first_run", *of_ctc, "ctc_texts=text")
    assert status == 0, stderr
    assert "2 of them are new to the CTC of the model, which used 1" in stderr
    assert "without a CTC loss" not in stderr
    losses = yaml.safe_load((home / "second_run/init.yaml").read_text())["loss_dict"]
    assert 0 < losses["loss_ctc"] < 1e4  # of 1500 frames


@pytest.mark.parametrize("ranks", [1, 2])
def test_texts_that_the_units_of_the_model_cannot_write_are_told_once(
    home: Path, ranks: int
) -> None:
    expected = "of the tokens are not units of the model, such as ж, and are learned as <unk>"
    status, stderr = train(home, "known", "--from", "base", ranks=ranks)
    assert status == 0, stderr
    assert "not units of the model" not in stderr

    lines = [json.loads(line) for line in (home / "train.list").read_text().splitlines()]
    lines[0]["txt"] = "ж" * len(lines[0]["txt"])
    (home / "train.list").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    status, stderr = train(home, "tuned", "--from", "base", ranks=ranks)
    assert status == 0, stderr
    assert stderr.count(expected) == 1


@pytest.mark.parametrize("kind", ["ours", pytest.param("whisper", marks=pytest.mark.all)])
def test_decoding_shows_the_error_rates_before_and_after(home: Path, kind: str) -> None:
    """The model before is decoded as it was, whatever the fine-tuning changes in its features."""
    source = home / "base"
    if kind == "whisper":
        source = write_openai(home / "sources/whisper.pt")
        write_full_vocabulary(home / "sources/multilingual.tiktoken")
    status, stderr = train(home, "tuned", "--from", str(source))
    assert status == 0, stderr
    lines = [json.loads(line) for line in (home / "cv.list").read_text().splitlines()]
    for part in ("dev", "test"):
        data = home / "data" / part
        data.mkdir(parents=True)
        shutil.copy(home / "cv.list", data / "data.list")
        (data / "text").write_text("".join(f"{line['key']} {line['txt']}\n" for line in lines))

    mode = "attention"
    done = call("decode.sh", "--dir", "tuned", "--decode_modes", mode, cwd=home)
    assert done.returncode == 0, done.stderr
    assert "5 of 5 utterances of data/dev/data.list (seed 1)" in done.stderr
    for folder in ("tuned/before", "tuned"):
        assert (home / folder / mode / "wer").read_text().count("Overall -> ") == 1
    report = (home / "tuned/report.html").read_text()
    assert "before/attention" in report
    assert "Before and after fine-tuning" in report
    last_line = done.stdout.splitlines()[-1]
    assert re.match(rf"tuned: {mode}: as written .* normalised .* writing is .* hearing", last_line)
    sure = json.loads((home / "tuned/calibration/attention/nbest.jsonl").open().readline())
    assert sure["key"] == lines[0]["key"]
    assert ("calibration error" in report) == bool(sure["hypotheses"][0]["words"])


def test_a_training_that_makes_the_model_worse_warns_and_the_average_is_the_model_before(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["optim_conf.lr=3", "scheduler_conf.warmup_steps=1"]
    status, stderr = train(home, "tuned", "--from", "base", "--override_config", *keys)
    assert status == 0, stderr
    assert "epoch 0: worse than before fine-tuning: cv loss" in stderr
    average = ["--dst_model", "tuned/avg.pt", "--src_path", "tuned", "--val_best"]
    monkeypatch.chdir(home)
    average_model.main(average)
    assert capsys.readouterr().out.startswith("before fine-tuning  loss ")
    means, first = weights(home / "tuned/avg.pt"), weights(home / "tuned/init.pt")
    assert all(torch.equal(means[name], first[name]) for name in first)


def test_a_new_ctc_layer_does_not_train_the_encoder_at_first(home: Path) -> None:
    """The encoder of a run whose loss is CTC alone stays as it is, while CTC learns."""
    base = yaml.safe_load((home / "base/train.yaml").read_text())
    base["model_conf"]["ctc_weight"] = 0.0
    (home / "base/train.yaml").write_text(yaml.safe_dump(base))
    only_ctc = ["--override_config", "model_conf.ctc_weight=1.0"]
    status, stderr = train(home, "tuned", "--from", "base", *only_ctc)
    assert status == 0, stderr
    assert "CTC is new: its gradient does not reach the encoder" in stderr
    last, first = weights(home / "tuned/final.pt"), weights(home / "base/final.pt")
    encoder = [name for name in first if name.startswith("encoder.")]
    assert all(torch.equal(last[name], first[name]) for name in encoder)
    assert not torch.equal(last["ctc.ctc_lo.weight"], first["ctc.ctc_lo.weight"])
    compared = yaml.safe_load((home / "tuned/init.yaml").read_text())["compared"]
    assert compared == {"loss": 1.0, "loss_ctc": -1.0}
    status, stderr = train(home, "free", "--from", "base", *only_ctc, "ctc_detach_steps=0")
    assert status == 0, stderr
    last = weights(home / "free/final.pt")
    assert not all(torch.equal(last[name], first[name]) for name in encoder)


def test_an_export_stands_for_its_run(home: Path) -> None:
    (home / "base/onnx").mkdir()
    (home / "base/onnx/encoder.onnx").write_bytes(b"")
    status, stderr = train(home, "tuned", "--from", "base/onnx")
    assert status == 0, stderr
    assert "an export cannot be trained; its run has the weights" in stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "missing: no such file or folder"),
        ("empty", "empty: training cannot start from this: expected a folder with train.yaml and"),
        (
            "train.list",
            "train.list: training cannot start from this: not the weights of a model (a",
        ),
        ("model.onnx", "model.onnx: an export, whose weights cannot be trained; give the folder"),
        ("config_only", "config_only: neither avg.pt nor final.pt in it"),
        (
            "plain.pt",
            "plain.pt: training cannot start from this: weights of this package and of WeN",
        ),
        (
            "text.pt",
            "text.pt: training cannot start from this: not the weights of a model (a text)",
        ),
    ],
)
def test_what_is_no_start_is_one_line(home: Path, name: str, message: str) -> None:
    place = home / "sources"
    (place / "empty").mkdir(parents=True)
    (place / "config_only").mkdir()
    shutil.copy(home / "base/train.yaml", place / "config_only")
    shutil.copy(home / "train.list", place)
    (place / "model.onnx").write_bytes(b"")
    torch.save({"a": torch.ones(1)}, place / "plain.pt")
    (place / "text.pt").write_text("no weights")
    status, stderr = train(home, "tuned", "--from", f"sources/{name}")
    assert status == 1
    (line,) = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert message in line
    assert "Traceback" not in stderr
    assert not (home / "tuned").exists()


def test_a_whisper_has_its_own_units(home: Path) -> None:
    source = write_openai(home / "sources/whisper.pt")
    write_full_vocabulary(home / "sources/multilingual.tiktoken")
    status, stderr = train(home, "tuned", "--from", str(source), "--symbol_table", "units.txt")
    assert status == 1
    assert "symbol_table_path units.txt: tokenizer whisper of the model has its own un" in stderr
    assert stderr.count("error: ") == 1


def test_a_warm_up_that_is_not_stated_ends_within_the_run_and_stays_when_the_run_grows(
    home: Path,
) -> None:
    keys = {**FINE_TUNING, "dataset_conf": {"batch_conf": {"batch_type": "static"}}}
    del keys["scheduler_conf"]
    (home / "finetune.yaml").write_text(yaml.safe_dump(keys))
    batch = "dataset_conf.batch_conf.batch_size=2"  # 11 steps
    for epochs in (1, 2):
        changed = ("--override_config", batch, f"max_epoch={epochs}")
        status, stderr = train(home, "tuned", "--from", "base", *changed)
        assert status == 0, stderr
        assert stderr.count("warmup_steps 3: the learning rate is highest after") == (epochs == 1)
        assert "changed since the run began: scheduler_conf" not in stderr
        tuned = yaml.safe_load((home / "tuned/train.yaml").read_text())
        assert tuned["scheduler_conf"]["warmup_steps"] == 3


def test_a_file_without_weights_is_refused_before_the_data_lists_are_read(home: Path) -> None:
    status, stderr = train(home, "tuned", "--from", "base/units.txt", "--train_data", "absent.list")
    assert status == 1
    assert "error: base/units.txt: not the weights of a model (a text); give weights" in stderr
    assert not (home / "tuned").exists()


def openai(folder: Path, golden2: Path) -> Path:
    return write_openai(folder / "whisper.pt")


def hugging_face(folder: Path, golden2: Path) -> Path:
    return write_hugging_face(folder / "whisper")


def funasr(folder: Path, golden2: Path) -> Path:
    model = write_funasr(golden2 / "paraformer", folder / "paraformer")
    with open(model / "seg_dict", "a") as words:  # those of the texts
        words.writelines(f"{2 * unit} {unit} {unit}\n" for unit in "abc")
    return model


def icefall(folder: Path, golden2: Path) -> Path:
    model = folder / "zipformer"
    model.mkdir()
    shutil.copy(golden2 / "zipformer/pretrained.pt", model)
    units = ["<blk>", "<sos/eos>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", *map(str, range(21))]
    lines = (f"{unit} {place}\n" for place, unit in enumerate(units))
    (model / "tokens.txt").write_text("".join(lines))
    return model


@pytest.mark.parametrize(
    ("write", "ranks"),
    [
        (openai, 2),
        pytest.param(hugging_face, 1, marks=pytest.mark.all),  # tests/matrix/test_starts.py has it
        pytest.param(funasr, 1, marks=pytest.mark.all),  # and this one
        (icefall, 1),
    ],
)
def test_models_of_other_packages_are_converted_and_trained_and_their_files_stay_as_they_are(
    home: Path, golden2: Path, write: Callable[[Path, Path], Path], ranks: int
) -> None:
    sources = home / "sources"
    sources.mkdir()
    source = write(sources, golden2)
    if "whisper" in source.name:
        write_full_vocabulary((source if source.is_dir() else sources) / "multilingual.tiktoken")
    before = digest(sources)
    status, stderr = train(home, "tuned", "--from", str(source), ranks=ranks)
    assert status == 0, stderr
    assert digest(sources) == before
    assert "before fine-tuning: cv loss" in stderr
    for note in ("texts are learned as the data has them", "timestamps are not trained"):
        assert stderr.count(note) == ("whisper" in source.name)
    assert (home / "tuned/epoch_0.pt").exists()
    converted, first = weights(home / "tuned/from/final.pt"), weights(home / "tuned/init.pt")
    assert all(torch.equal(first[name], converted[name]) for name in converted)
