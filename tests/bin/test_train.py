from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.base.cli import run
from wenet_uio.bin.train import main
from wenet_uio.dataset.corpus.open_list import open_list

ROOT = Path(__file__).parents[2]
TRAIN_AND_COUNT = """
import resource, runpy, sys
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    for turn in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bytearray(100_000_000)
    print("cleared", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints how many pages the system clears for memory that the process had before."""
TRANSDUCER = {"model": "transducer", "predictor": "rnn", "joint": "transducer_joint"}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Folder with train.list (22 utterances), cv.list (5), units.txt and train.yaml."""
    return write_corpus(tmp_path)


def command(
    model_dir: str, *options: str, ranks: int = 1, train_data: str | None = "train.list"
) -> list[str]:
    launch = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
        if ranks > 1
        else []
    )
    data = ["--config", "train.yaml", "--cv_data", "cv.list", "--device", "cpu"]
    data += ["--train_data", train_data] if train_data else []
    return [
        *launch,
        str(ROOT / "wenet_uio/bin/train.py"),
        *data,
        "--model_dir",
        model_dir,
        *options,
    ]


def train(corpus: Path, *arguments: str, **keys: Any) -> tuple[int, str]:
    """Exit status and standard error."""
    done = preloaded.run(command(*arguments, **keys), cwd=corpus)
    return done.returncode, done.stderr


def test_a_config_may_name_its_data_and_mix_text_without_audio_into_it(corpus: Path) -> None:
    (corpus / "texts.txt").write_text("abcab\n" * 30)
    sources = [{"type": "raw", "data_list": "train.list"}, {"type": "txt", "paths": "texts.txt"}]
    dataset_conf = {
        **CONFIG["dataset_conf"],
        "batch_conf": {"batch_type": "static", "batch_size": 4, "batch_tokens": 20},
    }
    config = {**CONFIG, "data": sources, "dataset_conf": dataset_conf}
    (corpus / "train.yaml").write_text(yaml.safe_dump({**config, **TRANSDUCER}))
    status, said = train(corpus, "exp", train_data=None)
    assert status == 1
    assert "data of the config: text without audio trains the attention decoder" in said
    (corpus / "train.yaml").write_text(yaml.safe_dump(config))
    status, said = train(corpus, "exp", ranks=2, train_data=None)
    assert status == 0, said
    assert "epoch 1/1: train loss" in said
    assert (
        yaml.safe_load((corpus / "exp/train.yaml").read_text())["data"]["sources"][1]["paths"]
        == "texts.txt"
    )


ENABLE_LHOTSE = [
    "model.train_ds.manifest_filepath=train.json",
    "model.train_ds.num_workers=4",
    "model.train_ds.min_duration=0.1",
    "model.train_ds.max_duration=30.0",
    "model.train_ds.shuffle=true",
    "++model.train_ds.use_lhotse=True",
    "++model.train_ds.batch_duration=4",
    "++model.train_ds.quadratic_duration=30",
    "++model.train_ds.num_buckets=30",
    "++model.train_ds.num_cuts_for_bins_estimate=10000",
    "++model.train_ds.bucket_buffer_size=10000",
    "++model.train_ds.shuffle_buffer_size=10000",
    "++trainer.use_distributed_sampler=false",
    "++trainer.limit_train_batches=2",
    "trainer.val_check_interval=2",
    "trainer.max_steps=4",
]
"""Overrides of NeMo's document for Lhotse, with smaller numbers."""


def test_the_overrides_of_nemos_document_train_on_two_ranks_and_each_note_is_said_once(
    corpus: Path,
) -> None:
    lines = [json.loads(line) for line in (corpus / "train.list").read_text().splitlines()]
    entries = [
        {"audio_filepath": line["wav"], "text": line["txt"], "duration": 0.5} for line in lines
    ]
    (corpus / "train.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    keys = {key: value for key, value in CONFIG.items() if key != "max_epoch"}
    (corpus / "train.yaml").write_text(yaml.safe_dump(keys))
    options = ("--override_config", *ENABLE_LHOTSE)
    status, said = train(corpus, "exp", *options, ranks=2, train_data=None)
    assert status == 0, said
    assert yaml.safe_load((corpus / "exp/epoch_1.yaml").read_text())["step"] == 4
    notes = [
        line.partition(" train.yaml: ")[2] for line in said.splitlines() if "not needed" in line
    ]
    assert len(notes) == len(set(notes)) == 7


def test_training_writes_a_run_that_other_tools_can_use_and_logs_that_it_is_complete(
    corpus: Path,
) -> None:
    status, said = train(corpus, "exp")
    assert status == 0, said
    assert "epoch 1/1: train loss" in said
    written = yaml.safe_load((corpus / "exp/train.yaml").read_text())
    assert (written["input_dim"], written["output_dim"], written["vocab_size"]) == (23, 6, 6)
    record = yaml.safe_load((corpus / "exp/epoch_1.yaml").read_text())
    assert record["step"] == 12
    assert torch.load(corpus / "exp/final.pt").keys() == torch.load(corpus / "exp/init.pt").keys()
    assert (corpus / "exp/README.md").exists()
    assert not (corpus / "exp/report.html").exists()  # `report: false`
    status, said = train(corpus, "exp")
    assert status == 0
    assert "complete, max_epoch 2 is reached" in said


def test_training_on_a_cpu_keeps_the_memory_that_it_frees(corpus: Path) -> None:
    (corpus / "count.py").write_text(TRAIN_AND_COUNT)
    done = preloaded.run(
        ["count.py", *command("exp", "--override_config", "max_steps=1")], cwd=corpus
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split("cleared")[1]) < 100


def test_features_computed_on_the_training_device_give_the_same_weights(corpus: Path) -> None:
    options = ["--override_config", "max_epoch=1", "dataset_conf.spec_trim=true"]
    for place, workers in (("worker", "0"), ("accelerator", "auto")):
        status, said = train(
            corpus, place, *options, "--feature_device", place, "--num_workers", workers
        )
        assert status == 0, said
        config = yaml.safe_load((corpus / place / "train.yaml").read_text())
        assert config["dataset_conf"]["feature_device"] == place
    ours, theirs = (torch.load(corpus / place / "final.pt") for place in ("accelerator", "worker"))
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


def test_two_ranks_take_the_same_number_of_steps_and_measure_the_validation_set_once(
    corpus: Path,
) -> None:
    status, said = train(corpus, "two", ranks=2)
    assert status == 0, said
    assert "Warning" not in said
    assert yaml.safe_load((corpus / "two/epoch_1.yaml").read_text())["step"] == 6
    # One rank validates the same weights, after a step with a learning rate that changes nothing.
    frozen = [
        "--override_config",
        "max_epoch=1",
        "optim_conf.lr=1e-30",
        "--checkpoint",
        "two/epoch_1.pt",
    ]
    losses = []
    for ranks in (1, 2):
        status, said = train(corpus, f"frozen{ranks}", *frozen, ranks=ranks)
        assert status == 0, said
        losses.append(
            yaml.safe_load((corpus / f"frozen{ranks}/epoch_0.yaml").read_text())["loss_dict"]
        )
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--override_config", "accum_grda=2"],
            "accum_grda: unknown key; did you mean 'accum_grad'",
        ),
        (["--override_config", "input_dim=80"], "input_dim 80, but dataset_conf gives 23"),
        (["--override_config", "output_dim=5"], "output_dim 5 has no room for the 6 units"),
        (
            ["--override_config", "dataset_conf.filter_conf.min_length=5000"],
            "train.list: dataset_conf.filter_conf leaves no utterance",
        ),
        (["--train_engine", "torch_dpd"], "did you mean 'torch_ddp'"),
        (["--train_data", "absent.list"], "absent.list"),
        (["--cv_data", "empty.list"], "empty.list"),
        (["--checkpoint", "units.txt"], "units.txt: not the weights of a model"),
        (
            ["--enc_init", "encoder.pt", "--enc_init_mods", "ctc"],
            "encoder.pt: no weights of 'ctc'; the file has",
        ),
        (["--freeze_modules", "encodr"], "no module 'encodr'; did you mean 'encoder'"),
        (["--override_config", "max_epoch=many"], "max_epoch: expected an integer"),
        (["--override_config", "use_amp=Flase"], "use_amp: expected a boolean"),
        (["--override_config", "max_epoch"], "expected key.subkey=value"),
        (
            ["--train_engine", "deepspeed", "--deepspeed_config", "ds.json"],
            "ds.json: zero_optimization.stage must be 1",
        ),
    ],
)
def test_errors_are_reported_once_before_anything_is_written(
    corpus: Path,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (corpus / "empty.list").write_text("")
    (corpus / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    torch.save({"encoder.after_norm.weight": torch.ones(16)}, corpus / "encoder.pt")
    monkeypatch.chdir(corpus)
    with pytest.raises(SystemExit, match="^1$"):
        run(lambda: main(command("exp", *options)[1:]))
    said = capfd.readouterr().err
    assert said.count("error: ") == 1
    assert message in said
    assert "Traceback" not in said
    assert not (corpus / "exp").exists()


def test_of_several_ranks_one_reports_an_error(corpus: Path) -> None:
    status, said = train(corpus, "exp", "--override_config", "accum_grda=2", ranks=2)
    assert status != 0
    assert said.count("did you mean 'accum_grad'") == 1
    assert not (corpus / "exp").exists()


def test_an_epoch_may_be_a_number_of_steps(corpus: Path) -> None:
    status, said = train(corpus, "exp", "--override_config", "epoch_steps=4", "max_epoch=3")
    assert status == 0, said
    steps = [
        yaml.safe_load((corpus / f"exp/epoch_{number}.yaml").read_text())["step"]
        for number in range(3)
    ]
    assert steps == [4, 8, 12]


def test_changed_data_within_an_epoch_is_refused_unless_allowed(corpus: Path) -> None:
    status, said = train(corpus, "exp", "--override_config", "epoch_steps=4", "max_epoch=1")
    assert status == 0, said
    lines = (corpus / "train.list").read_text().splitlines(keepends=True)
    (corpus / "train.list").write_text("".join(lines[1:]))
    options = ["--override_config", "epoch_steps=4", "max_epoch=2"]
    status, said = train(corpus, "exp", *options)
    assert status == 1
    assert "error: the data set train.list changed since the checkpoint" in said.splitlines()[-1]
    status, said = train(corpus, "exp", *options, "--allow_data_changes")
    assert status == 0, said


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.all)])
def test_audio_that_came_back_is_read_by_a_new_run_and_told_to_a_run_that_resumes(
    corpus: Path, ranks: int
) -> None:
    (corpus / "train3.wav").rename(corpus / "away")
    options = ["--override_config", "epoch_steps=2", "dataset_conf.max_bad_ratio=0.1"]
    status, said = train(corpus, "exp", *options, "max_epoch=1", ranks=ranks)
    assert status == 0, said
    index = (corpus / "train.list.idx").stat()
    (corpus / "away").rename(corpus / "train3.wav")

    status, said = train(corpus, "exp", *options, "max_epoch=2", ranks=ranks)
    assert status == 0, said
    told = [line for line in said.splitlines() if "are there now, or have changed" in line]
    (line,) = told
    assert "train.list: 1 of 1 files that could not be read" in line
    assert line.endswith("this run goes on without them, and a new run reads them")
    assert (corpus / "train.list.idx").stat() == index

    status, said = train(corpus, "new", *options, "max_epoch=1", ranks=ranks)
    assert status == 0, said
    assert said.count("the list is indexed again") == 1
    assert open_list(str(corpus / "train.list"), "raw").num_samples == 22

    # The former run is inside an epoch of the former list.
    status, said = train(corpus, "exp", *options, "max_epoch=3", ranks=ranks)
    assert status == 1
    assert "the data set train.list changed since the checkpoint" in said


def test_texts_that_changed_and_a_validation_set_that_shrank_are_named_on_resume(
    corpus: Path,
) -> None:
    options = ["--override_config", "epoch_steps=4"]
    status, said = train(corpus, "exp", *options, "max_epoch=1")
    assert status == 0, said
    status, said = train(corpus, "exp", *options, "max_epoch=2")
    assert "changed since the run began: max_epoch" in said
    assert "_data" not in said

    texts = (corpus / "train.list").read_text()
    changed = texts.replace('"txt": "a', '"txt": "b')
    assert changed != texts
    (corpus / "train.list").write_text(changed)
    lines = (corpus / "cv.list").read_text().splitlines(keepends=True)
    (corpus / "cv.list").write_text("".join(lines[1:]))
    status, said = train(corpus, "exp", *options, "max_epoch=3")
    assert status == 0, said
    assert (
        "changed since the run began: train_data train.list: texts, or other contents, of equal "
        "length" in said
    )
    assert "changed since the run began: cv_data cv.list: 5 utterances and " in said
    assert " -> 4 utterances and " in said


def test_two_ranks_account_for_every_utterance_and_name_the_bad_ones(corpus: Path) -> None:
    with open(corpus / "train.list", "a") as file:
        file.write("no JSON\n")
    open_list(str(corpus / "train.list"), "raw")  # writes the index before the audio breaks
    (corpus / "train3.wav").write_bytes(b"")
    filters = "dataset_conf.filter_conf.max_duration=0.76"  # of 0.5 to 0.8 s
    status, said = train(corpus, "exp", "--override_config", filters, "--num_workers", "1", ranks=2)
    assert status == 0, said
    counts = {
        "all": 23,
        "read": 18,
        "filtered": {"max_duration": 3},
        "bad": {"not_indexed": 1, "unreadable": 1},
    }
    for epoch in range(2):
        assert yaml.safe_load((corpus / f"exp/epoch_{epoch}.yaml").read_text())["samples"] == counts
    account = (
        "23 utterances: 18 read, 3 filtered (3 max_duration), 2 bad (1 not_indexed, 1 unreadable)"
    )
    assert f"epoch 1/1: {account}" in said
    named = [json.loads(line) for line in open(corpus / "exp/bad_samples.jsonl")]
    assert sorted((line["pass"], line["key"], line["reason"]) for line in named) == [
        (0, f"{corpus}/train.list:23", "not_indexed"),
        (0, "train3", "unreadable"),
        (1, "train3", "unreadable"),
    ]


def test_utterances_without_a_path_of_ctc_are_left_out_and_counted_in_training_and_validation(
    corpus: Path,
) -> None:
    for name, count in (("train.list", 3), ("cv.list", 1)):
        lines = [json.loads(line) for line in (corpus / name).read_text().splitlines()]
        for line in lines[:count]:
            line["txt"] = "aaaaaaaaaaaaaaa" * 2  # 59 frames of CTC; the audio has 12 to 19
        (corpus / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    status, said = train(corpus, "exp", ranks=2)
    assert status == 0, said
    record = yaml.safe_load((corpus / "exp/epoch_1.yaml").read_text())
    assert record["samples"] == {"all": 22, "read": 19, "filtered": {"no_ctc_path": 3}, "bad": {}}
    assert "22 utterances: 19 read, 3 filtered (3 no_ctc_path), 0 bad" in said
    assert "validation left out: 1 no_ctc_path" in said
    assert not (corpus / "exp/bad_samples.jsonl").exists()


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.all)])
def test_a_validation_set_that_cannot_be_read_ends_the_run_and_a_mended_one_goes_on_from_there(
    corpus: Path, ranks: int
) -> None:
    assert train(corpus, "quiet", ranks=ranks)[0] == 0
    whole = (corpus / "cv.list").read_text()
    lines = [json.loads(line) | {"txt": "a" * 30} for line in whole.splitlines()]
    (corpus / "cv.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, said = train(corpus, "exp", ranks=ranks)
    assert status == 1
    assert "validation left out: 5 no_ctc_path" in said
    assert said.count("error: cv.list: no utterance of the validation set was read") == 1
    assert not (corpus / "exp/epoch_0.pt").exists()

    (corpus / "cv.list").write_text(whole)
    status, said = train(corpus, "exp", ranks=ranks)
    assert status == 0, said
    final, expected = (
        torch.load(corpus / run / "final.pt", weights_only=True) for run in ("exp", "quiet")
    )
    assert all(torch.equal(final[name], value) for name, value in expected.items())


def test_texts_by_characters_with_units_of_words_end_with_the_cause_before_the_first_step(
    corpus: Path,
) -> None:
    units = ["<blank>", "<unk>", "zero", "one", "two", "<sos/eos>"]
    (corpus / "units.txt").write_text(
        "".join(f"{unit} {number}\n" for number, unit in enumerate(units))
    )
    data = (corpus / "train.list").read_text()
    for letter, word in zip("abc", ("zero", "one", "two"), strict=True):
        data = data.replace(f'"{letter * 2}"', f'"{" ".join([word] * 20)}"')
    (corpus / "train.list").write_text(data)
    status, said = train(corpus, "exp")
    assert status == 1
    assert "error: train.list: texts are cut into characters, such as o, " in said
    assert "no_ctc_path" not in said
    assert not (corpus / "exp").exists()


def test_units_that_changed_since_the_run_began_are_refused_and_the_copy_is_kept(
    corpus: Path,
) -> None:
    status, said = train(corpus, "exp", "--override_config", "max_epoch=1")
    assert status == 0, said
    copy, units = corpus / "exp/units.txt", corpus / "units.txt"
    former = copy.read_text()
    units.write_text(former.replace("a 2\nb 3\n", "b 2\na 3\n"))  # the same size
    status, said = train(corpus, "exp")
    assert status == 1
    assert "units.txt changed since the run in exp began: restore the former contents" in said
    assert copy.read_text() == former

    status, said = train(corpus, "exp", "--allow_data_changes")
    assert status == 0, said
    assert "it is kept as units.txt.former-1" in said
    assert (corpus / "exp/units.txt.former-1").read_text() == former
    assert copy.read_text() == units.read_text()
