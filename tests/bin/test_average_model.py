"""average_model.py: choice of the epochs, means, and errors in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
import yaml

from tests.support import preloaded
from wenet_uio.train.averaging import add_start, average_weights, choose_epochs


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Epochs 0 .. 4 with weight N and validation loss 10 + |N - 2|; epoch 4 in the older format of
    yaml.
    """
    for number in range(5):
        weights = {"w": torch.full((2,), float(number)), "steps": torch.tensor(number)}
        torch.save(weights, tmp_path / f"epoch_{number}.pt")
        loss = 10 + abs(number - 2) + number / 100
        record = (
            {"cv_loss": loss} if number == 4 else {"epoch": number, "loss_dict": {"loss": loss}}
        )
        (tmp_path / f"epoch_{number}.yaml").write_text(yaml.safe_dump(record))
    torch.save({"w": torch.full((2,), 99.0), "steps": torch.tensor(99)}, tmp_path / "init.pt")
    return tmp_path


def average(*arguments: object) -> CompletedProcess:
    return preloaded.run(["-m", "wenet_uio.bin.average_model", *arguments])


def numbers(epochs) -> list[int]:
    return [epoch.number for epoch in epochs]


def test_weights_that_are_one_tensor_stay_one_in_the_file(tmp_path):
    for number in (1.0, 3.0):
        table = torch.full((100, 10), number)
        weights = {"embed": table, "output": table, "other": torch.full((100, 10), number)}
        torch.save(weights, tmp_path / f"epoch_{number:.0f}.pt")

    mean = average_weights([tmp_path / "epoch_1.pt", tmp_path / "epoch_3.pt"])
    assert list(mean) == ["embed", "output", "other"]
    assert all(bool((value == 2).all()) for value in mean.values())
    assert mean["embed"].data_ptr() == mean["output"].data_ptr() != mean["other"].data_ptr()


def test_newest_epochs_by_number(run_folder):
    torch.save({}, run_folder / "epoch_10.pt")
    assert numbers(choose_epochs(run_folder, 2, val_best=False)) == [10, 4]


def test_best_epochs_by_validation_loss(run_folder):
    assert numbers(choose_epochs(run_folder, 4, val_best=True)) == [2, 1, 3, 0]


def test_min_epoch_and_max_epoch_limit_the_choice(run_folder):
    assert numbers(choose_epochs(run_folder, 5, val_best=True, min_epoch=1, max_epoch=3)) == [
        2,
        1,
        3,
    ]
    assert numbers(choose_epochs(run_folder, 5, val_best=False, min_epoch=3)) == [4, 3]


def test_epochs_without_a_finite_loss_do_not_count(run_folder):
    (run_folder / "epoch_2.yaml").write_text(yaml.safe_dump({"loss_dict": {"loss": math.nan}}))
    assert numbers(choose_epochs(run_folder, 2, val_best=True)) == [1, 3]


def test_yaml_without_loss_is_named(run_folder):
    (run_folder / "epoch_2.yaml").write_text("epoch: 2\n")
    with pytest.raises(
        ValueError, match=r"epoch_2\.yaml: expected a number as loss_dict\.loss or cv_loss"
    ):
        choose_epochs(run_folder, 2, val_best=True)


@pytest.mark.parametrize("content", ["", "null", "[1", "\xff\xfe", "- 1"])
def test_a_damaged_yaml_is_one_line_with_its_name(run_folder, content):
    (run_folder / "epoch_1.yaml").write_bytes(content.encode("latin-1"))
    done = average("--src_path", run_folder, "--dst_model", run_folder / "avg.pt", "--val_best")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {run_folder}/epoch_1.yaml: ")
    assert done.stderr.count("\n") == 1


def test_an_epoch_whose_yaml_is_not_written_yet_is_left_out_and_named(run_folder):
    (run_folder / "epoch_2.yaml").unlink()
    assert numbers(choose_epochs(run_folder, 2, val_best=True)) == [1, 3]
    done = average("--src_path", run_folder, "--dst_model", run_folder / "avg.pt", "--val_best")
    assert done.returncode == 0
    assert "epoch_2.pt: left out, its validation loss is not written yet" in done.stderr


def test_means_are_summed_in_float64_and_integers_are_copied_from_the_first(tmp_path):
    large, small = 2.0**24, 1.0
    for number, value in enumerate((large, small, small)):
        torch.save(
            {"w": torch.tensor([value]), "n": torch.tensor(7 - number)}, tmp_path / f"{number}.pt"
        )
    mean = average_weights([tmp_path / f"{number}.pt" for number in range(3)])
    assert mean["w"].dtype == torch.float32
    assert mean["w"].item() == torch.tensor((large + 2 * small) / 3).item()
    assert mean["n"].item() == 7


def test_weights_of_another_model_are_refused(tmp_path):
    torch.save({"w": torch.zeros(2)}, tmp_path / "a.pt")
    torch.save({"w": torch.zeros(3)}, tmp_path / "b.pt")
    with pytest.raises(ValueError, match=r"b\.pt: not of the same model"):
        average_weights([tmp_path / "a.pt", tmp_path / "b.pt"])


def test_command_writes_the_mean(run_folder):
    done = average(
        "--src_path", run_folder, "--dst_model", run_folder / "avg.pt", "--num", 3, "--val_best"
    )
    assert done.returncode == 0, done.stderr
    weights = torch.load(run_folder / "avg.pt", weights_only=True)
    assert weights["w"].tolist() == [2.0, 2.0]
    assert weights["steps"].item() == 2
    assert done.stderr == ""


def start_with_loss(loss: float, run_folder: Path) -> None:
    """Let the run have started from a trained model, with the newer format of yaml."""
    record = {"epoch": -1, "loss_dict": {"loss": loss}, "compared": {"loss": 1.0}}
    (run_folder / "init.yaml").write_text(yaml.safe_dump(record))
    (run_folder / "epoch_4.yaml").write_text(yaml.safe_dump({"loss_dict": {"loss": 12.04}}))


def test_the_start_of_a_fine_tuning_counts_as_one_more_epoch(run_folder):
    start_with_loss(12.5, run_folder)
    done = average(
        *("--src_path", run_folder, "--dst_model", run_folder / "avg.pt"),
        *("--num", 3, "--val_best", "--with_start"),
    )
    assert done.returncode == 0, done.stderr
    weights = torch.load(run_folder / "avg.pt", weights_only=True)
    assert weights["w"].tolist() == [(2 + 1 + 3 + 99) / 4] * 2
    assert done.stdout.splitlines()[-2:] == [
        "before fine-tuning",
        f"{run_folder / 'avg.pt'}: mean of 4",
    ]
    assert done.stderr == ""


def test_a_start_that_all_epochs_are_worse_than_counts_once(run_folder):
    start_with_loss(0.0, run_folder)
    chosen = add_start(choose_epochs(run_folder, 3, val_best=True), run_folder)
    assert numbers(chosen) == [-1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "this run did not start from a trained model"),
        (["--running"], "a running average is of epochs only"),
    ],
)
def test_a_start_that_cannot_count_is_one_line(run_folder, more, message):
    done = average(
        "--src_path", run_folder, "--dst_model", run_folder / "avg.pt", "--with_start", *more
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    """Two runs from one start: epochs 0 and 1 with weights 0, 1 and 10, 11; the second is better."""
    runs = [tmp_path / "seed_1", tmp_path / "seed_2"]
    for run, first in zip(runs, (0.0, 10.0), strict=True):
        run.mkdir()
        for number in range(2):
            weights = {name: torch.full((2,), first + number) for name in ("w", "v", "ctc")}
            torch.save(weights, run / f"epoch_{number}.pt")
            record = {"epoch": number, "loss_dict": {"loss": 2.0 - number / 10}}
            (run / f"epoch_{number}.yaml").write_text(yaml.safe_dump(record))
        torch.save({name: torch.full((2,), 99.0) for name in ("w", "v", "ctc")}, run / "init.pt")
        record = {"epoch": -1, "loss_dict": {"loss": 9.0}, "compared": {"loss": 1.0}}
        (run / "init.yaml").write_text(yaml.safe_dump(record))
    return runs


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--num", 1, "--val_best"], (1 + 11) / 2),
        (["--num", 2], (0 + 1 + 10 + 11) / 4),
        (["--num", 1, "--with_start"], (1 + 11 + 99) / 3),
    ],
)
def test_runs_from_one_trained_model_have_a_mean(two_runs, tmp_path, more, expected):
    done = average("--src_path", *two_runs, "--dst_model", tmp_path / "mean.pt", *more)
    assert done.returncode == 0, done.stderr
    weights = torch.load(tmp_path / "mean.pt", weights_only=True)
    assert all(weights[name].tolist() == [expected] * 2 for name in ("w", "v", "ctc"))
    assert f"{two_runs[0]}: epoch 1" in done.stdout
    assert f"{two_runs[1]}: epoch 1" in done.stdout
    assert done.stderr == ""


def test_json_names_the_weights_of_each_run(two_runs, tmp_path):
    options = ["--dst_model", tmp_path / "mean.pt", "--num", 1, "--val_best", "--json"]
    done = average("--src_path", *two_runs, *options)
    means = json.loads(done.stdout)["mean_of"]
    assert [mean["weights"] for mean in means] == [str(run / "epoch_1.pt") for run in two_runs]


def test_a_layer_that_is_new_in_each_run_is_named(two_runs, tmp_path):
    start = torch.load(two_runs[1] / "init.pt", weights_only=True)
    torch.save({**start, "ctc": torch.zeros(2)}, two_runs[1] / "init.pt")
    done = average("--src_path", *two_runs, "--dst_model", tmp_path / "mean.pt", "--num", 1)
    assert done.returncode == 0
    assert "started with other weights than" in done.stderr
    assert "in 1 of 3, such as ctc" in done.stderr


def test_low_rank_weights_of_several_runs_are_merged_before_their_mean(two_runs, tmp_path):
    torch.manual_seed(0)
    merged = []
    for run in two_runs:
        for name in ("init", "epoch_0", "epoch_1"):
            low, high = torch.randn(2, 4), torch.randn(3, 2)
            weights = {"w.weight": torch.full((3, 4), 1.0), "w.lora_A": low, "w.lora_B": high}
            torch.save(weights, run / f"{name}.pt")
        merged.append(1.0 + 8 / 2 * high @ low)
        (run / "train.yaml").write_text(
            "{output_dim: 9, input_dim: 4, use_lora: true, lora_conf: {lora_rank: 2, lora_alpha: 8}}"
        )

    options = ["--src_path", *two_runs, "--num", 1, "--dst_model", tmp_path / "mean.pt"]
    for more in ([], ["--only_lora"]):
        done = average(*options, *more)
        assert done.returncode == 1
        assert f"{two_runs[0]}: low-rank weights (LoRA) of several runs have no mean" in done.stderr

    done = average(*options, "--merge_lora")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    mean = torch.load(tmp_path / "mean.pt", weights_only=True)
    assert list(mean) == ["w.weight"]
    torch.testing.assert_close(mean["w.weight"], (merged[0] + merged[1]) / 2)

    config = two_runs[1] / "train.yaml"
    config.write_text(config.read_text().replace("alpha: 8", "alpha: 4"))
    done = average(*options, "--merge_lora")
    assert f"error: {two_runs[1]}: lora_conf is not that of {two_runs[0]}" in done.stderr


def test_of_several_runs_a_warning_names_the_one_with_fewer_epochs(two_runs, tmp_path):
    (two_runs[1] / "epoch_0.pt").unlink()
    done = average("--src_path", *two_runs, "--dst_model", tmp_path / "mean.pt", "--num", 2)
    assert done.stderr == (
        f"warning: {two_runs[1]}: --num 2, but only 1 to average; averaging what is there\n"
    )


@pytest.mark.parametrize("reason", ["another start", "from scratch", "twice", "running"])
def test_runs_without_a_mean_are_one_line_and_nothing_is_written(two_runs, tmp_path, reason):
    first, second = two_runs
    more = []
    if reason == "another start":
        torch.save({name: torch.zeros(2) for name in ("w", "v", "ctc")}, second / "init.pt")
        message = f"error: {second}: did not start from the model that {first} started from"
    elif reason == "from scratch":
        (second / "init.yaml").unlink()
        message = f"error: {second}: this run did not start from a trained model"
    elif reason == "twice":
        second = first / "."
        message = f"error: {first}: named twice"
    else:
        more = ["--running"]
        message = "argument --running: a running average is of one run"

    done = average("--src_path", first, second, "--dst_model", tmp_path / "mean.pt", *more)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mean.pt").exists()


def test_fewer_epochs_than_num_is_a_warning(run_folder):
    done = average("--src_path", run_folder, "--dst_model", run_folder / "avg.pt", "--num", 9)
    assert done.returncode == 0
    assert done.stderr == ("warning: --num 9, but only 5 to average; averaging what is there\n")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint"])
def test_broken_checkpoint_is_one_line_and_nothing_is_written(run_folder, content):
    (run_folder / "epoch_3.pt").write_bytes(content)
    done = average("--src_path", run_folder, "--dst_model", run_folder / "avg.pt")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {run_folder / 'epoch_3.pt'}: not the weights of a model")
    assert done.stderr.count("\n") == 1
    assert not list(run_folder.glob("*avg*"))


def test_folder_without_epochs_is_one_line(tmp_path):
    done = average("--src_path", tmp_path, "--dst_model", tmp_path / "avg.pt")
    assert done.returncode == 1
    assert (
        done.stderr
        == f"error: {tmp_path}: no epoch_N.pt to average (N in 0..), 0 in all; train first\n"
    )
