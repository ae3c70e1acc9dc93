"""gpu.py: every mode at toy size on the CPU, its lines, its limits, and what it needs."""

from __future__ import annotations

import ast
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.lab.benchmark.test_benchmarks import benchmark

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "lab" / "benchmark"
NEEDED = {"torch", "numpy", "pydantic", "yaml", "soundfile", "fsspec", "tqdm", "requests"}
BROUGHT = {"jinja2", "markupsafe", "pydantic_core"}
"""Packages that torch and pydantic need."""
MODES = (
    "env",
    "parity",
    "syncs",
    "shapes",
    "speed",
    "kernels",
    "train",
    "memory",
    "ranks",
    "decode",
)


@pytest.fixture(scope="module")
def toy(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[CompletedProcess[str], list[dict[str, Any]]]:
    """Every mode at toy size on the CPU: how it ended, and the lines of its file."""
    out = tmp_path_factory.mktemp("gpu") / "gpu.jsonl"
    done = benchmark("gpu.py", "all", "--toy", "--device", "cpu", "--out", out)
    return done, [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture(scope="module")
def modes() -> Iterator[ModuleType]:
    """The package of the modes; `report`, `kernels` and others are its modules."""
    sys.path.insert(0, str(FOLDER))
    package = importlib.import_module("gpu_modes")
    for name in ("report", "recipes", "kernels", "train"):
        importlib.import_module(f"gpu_modes.{name}")
    yield package
    sys.path.remove(str(FOLDER))


def lines_of(toy: tuple[object, list[dict[str, Any]]], mode: str) -> list[dict[str, Any]]:
    return [line for line in toy[1] if line["mode"] == mode]


@pytest.mark.all
def test_every_mode_runs_at_toy_size_on_the_cpu(toy):
    done, lines = toy
    assert done.returncode == 0, done.stderr
    assert list(dict.fromkeys(line["mode"] for line in lines)) == list(MODES)
    assert [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")] == lines


@pytest.mark.all
def test_every_line_names_device_torch_commit_and_that_it_measures_nothing(toy):
    for line in toy[1]:
        assert (line["device"], line["torch"], line["toy"]) == ("cpu", torch.__version__, True)
        assert line["commit"]
        assert "error" not in line
        assert "left_out" not in line


@pytest.mark.all
def test_parity_is_exact_beside_itself_and_close_in_bf16(toy):
    same, rounded = lines_of(toy, "parity")
    assert (same["arithmetic"], same["loss_apart"], same["gradient_apart"]) == ("fp32", 0, 0)
    assert rounded["arithmetic"] == "bf16"
    assert 0 < rounded["gradient_apart"] < 0.1
    assert rounded["worst_apart"] >= rounded["gradient_apart"]


@pytest.mark.all
def test_syncs_names_the_lines_that_read_values(toy):
    lines = lines_of(toy, "syncs")
    assert [(line["micro_batches"], line["joined"]) for line in lines] == [
        (1, False),
        (3, True),
        (3, False),
    ] * 3
    for line in lines:
        assert "need a GPU" in line["counted"]
        assert line["count"] == sum(line["places"].values())
        assert all(
            (ROOT / "wenet_uio" / place.partition(":")[0]).is_file() for place in line["places"]
        )


@pytest.mark.all
def test_timed_modes_give_positive_figures(toy):
    figures = {
        "shapes": ("new_ms", "seen_ms"),
        "speed": ("audio_seconds_per_second", "step_ms", "host_ms", "peak_gb"),
        "decode": ("audio_seconds_per_second",),
    }
    for mode, names in figures.items():
        assert all(line[name] > 0 for line in lines_of(toy, mode) for name in names)
    assert {line["arithmetic"] for line in lines_of(toy, "speed")} == {"bf16", "fp32"}
    assert len({line["decode_mode"] for line in lines_of(toy, "decode")}) == 4


def test_the_time_of_the_host_is_that_of_launching_and_not_of_waiting_for_results(modes):
    class Step:
        def outcome(self) -> None:
            time.sleep(0.02)

    class Engine:
        def launch(self, *_: object) -> Step:
            time.sleep(0.001)
            return Step()

    began = time.perf_counter()
    launching = importlib.import_module("train_step").run_steps(Engine(), [None] * 5, 1)
    assert 0.005 <= launching < time.perf_counter() - began - 0.1 + 0.001


def test_models_of_the_modes_use_the_attention_of_training(modes, tmp_path):
    recipes, report = modes.recipes, make_report(modes, tmp_path)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        for expected in (False, True):
            torch.backends.cuda.enable_cudnn_sdp(not expected)
            recipes.config_of(
                report, recipes.recipe(report, recipes.STREAMING), cudnn_attention=expected
            )
            assert torch.backends.cuda.cudnn_sdp_enabled() == expected
        recipes.config_of(report, recipes.recipe(report, recipes.STREAMING))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_a_mode_may_take_two_minutes_more_than_its_own_and_five_at_least(modes):
    gpu = importlib.import_module("gpu")
    assert [gpu.seconds_of_mode(minutes) for minutes in (8, 4, 0.1)] == [600, 360, 300]


@pytest.mark.all
def test_kernels_lists_what_takes_the_time(toy):
    (line,) = lines_of(toy, "kernels")
    shares = [each["share"] for each in line["top"]]
    assert shares == sorted(shares, reverse=True)
    assert 0.5 < sum(shares) <= 1.0001


@pytest.mark.all
def test_train_runs_from_raw_and_shard_lists_with_features_of_workers_and_of_the_device(toy):
    found = {
        (line["data_type"], line["workers"], line["features"]) for line in lines_of(toy, "train")
    }
    assert found == {("shard", 1, "worker"), ("raw", 0, "accelerator")}
    for line in lines_of(toy, "train"):
        assert line["steps"] >= 2
        assert line["audio_seconds_per_second"] > 0
        assert 0 <= line["data_wait"] <= 1
        assert line["utilisation"] is None


@pytest.mark.all
def test_memory_finds_a_batch_that_fits_and_splits_another(toy):
    largest, split = lines_of(toy, "memory")
    assert (largest["utterances"], largest["max_frames_in_batch"]) == (2, 200)
    assert split["sizes_too_large"] == 1
    assert split["apart"] < 1e-4


@pytest.mark.all
def test_ranks_that_are_killed_and_resumed_end_with_equal_weights(toy):
    (line,) = lines_of(toy, "ranks")
    assert (line["ranks"], line["killed_at"], line["steps"]) == (2, 5, [8])
    assert line["resumed_after"] in (2, 4)  # the state of step 4 may be incomplete at the kill
    found = (line["dtypes"], line["first_other_loss"], line["largest_difference"])
    assert line["equal"], f"dtypes, first step with another loss, largest difference: {found}"
    assert found[1:] == (None, 0)


def test_a_mode_that_fails_is_named_on_one_line_and_the_others_run(tmp_path):
    out = tmp_path / "gpu.jsonl"
    done = benchmark(
        "gpu.py",
        "train",
        "env",
        "--toy",
        "--device",
        "cpu",
        "--folder",
        tmp_path / "gone",
        "--out",
        out,
    )
    assert done.returncode == 1
    first, last = done.stderr.splitlines()
    assert first.startswith("error: train: FileNotFoundError: ")
    assert last == "error: of 2 modes failed: train"
    failed, env = map(json.loads, out.read_text().splitlines())
    assert failed["mode"] == "train"
    assert "gone" in failed["error"]
    assert "Traceback" in failed["traceback"]
    assert env["mode"] == "env"
    assert env["packages"]["numpy"]


def test_a_file_that_cannot_be_written_is_an_error_before_the_first_mode(tmp_path):
    done = benchmark("gpu.py", "all", "--toy", "--out", tmp_path / "none" / "gpu.jsonl")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"error: {tmp_path}/none/gpu.jsonl: No such file or directory\n"


def test_a_process_that_does_not_end_is_killed_with_its_processes(modes):
    gpu = importlib.import_module("gpu")
    began = time.monotonic()
    status, why = gpu.run_apart(["sh", "-c", "sleep 600 & wait"], 0.1)
    assert (status, why) == (1, "was killed because it had not ended after 0 s")
    assert time.monotonic() - began < 300
    assert gpu.run_apart(["sh", "-c", "kill -SEGV $$"], 60) == (-11, "was killed by SIGSEGV")
    assert gpu.run_apart(["true"], 60) == (0, "")


def make_report(modes: ModuleType, tmp_path: Path, minutes: float = 8) -> Any:
    return modes.report.Report(
        "speed", modes.report.Options(minutes=minutes, out=str(tmp_path / "out"))
    )


def test_a_case_that_fails_or_does_not_fit_is_written_and_the_next_one_runs(
    modes, tmp_path, capsys
):
    report = make_report(modes, tmp_path)
    for frames in (1, 2, 3):
        with report.result(frames=frames) as found:
            if frames == 1:
                torch.empty(1 << 50)
            if frames == 2:
                raise KeyError("no such weight")
            found["speed"] = 1 / 3
    fits, failed, measured = (
        json.loads(line) for line in (tmp_path / "out").read_text().splitlines()
    )
    assert (fits["frames"], fits["fits"]) == (1, False)
    assert (failed["frames"], failed["error"]) == (2, "KeyError: 'no such weight'")
    assert (measured["frames"], measured["speed"]) == (3, 0.33333)
    assert report.failures == 1
    assert capsys.readouterr().err == "error: speed frames=2: KeyError: 'no such weight'\n"


def test_a_mode_stops_after_its_minutes_and_says_what_it_left_out(modes, tmp_path):
    report = make_report(modes, tmp_path, minutes=0)
    assert [
        case["frames"] for case in report.each([{"frames": 1}, {"frames": 2}, {"frames": 3}])
    ] == [1]
    line = json.loads((tmp_path / "out").read_text())
    assert (line["left_out"], line["minutes"]) == ([{"frames": 2}, {"frames": 3}], 0)
    assert not report.failures


def test_busy_time_counts_kernels_that_overlap_once(modes):
    assert modes.kernels.union([]) == 0
    assert modes.kernels.union([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 2.5)]) == 4


def test_means_of_training_leave_out_the_first_point_and_weigh_by_time(modes, tmp_path):
    names = ("audio_seconds_per_second", "data_wait", "padding")
    points = [
        {"time": at, "step": step, **{f"train/{name}": value for name in names}}
        for at, step, value in ((10.0, 20, 99.0), (11.0, 40, 1.0), (14.0, 60, 5.0))
    ]
    found = modes.train.summary(points)
    assert found == {**dict.fromkeys(names, 4.0), "seconds": 4.0, "steps": 40}
    with pytest.raises(RuntimeError, match="wrote 1 points, 2 are needed"):
        modes.train.summary(points[:1])
    (tmp_path / "samples").write_text("90\n100\nUnable to determine the device handle for GPU 0\n")
    assert modes.train.utilisation(tmp_path / "samples") == 0.95
    assert modes.train.utilisation(tmp_path / "absent") is None


def packages_of(start: list[Path]) -> dict[str, set[str]]:
    """Packages outside of the project that modules import when they are imported, and the modules
    that do so.
    """
    found: dict[str, set[str]] = {}
    todo, seen = list(start), set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in imports_at_import(ast.parse(path.read_text(encoding="utf-8")).body):
            parts = name.split(".")
            inside = [each for top in (ROOT, FOLDER) for each in files_of(top, parts)]
            todo += inside
            if not inside and parts[0] not in sys.stdlib_module_names:
                found.setdefault(parts[0], set()).add(path.name)
    return found


def imports_at_import(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, (ast.If, ast.Try)) and "TYPE_CHECKING" not in ast.dump(node):
            yield from imports_at_import(node.body)


def files_of(top: Path, parts: list[str]) -> list[Path]:
    """Files of the modules that importing `parts` runs; the last part may be a name in a module."""
    found = []
    for length in range(1, len(parts) + 1):
        path = top.joinpath(*parts[:length])
        found += [
            each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()
        ]
    return found


@pytest.mark.all
def test_no_other_packages_are_needed():
    found = packages_of(
        [FOLDER / "gpu.py", FOLDER / "gpu_training.py", *(FOLDER / "gpu_modes").glob("*.py")]
    )
    assert {name: users for name, users in found.items() if name not in NEEDED | BROUGHT} == {}
    assert "torch" in found


def test_the_page_and_the_help_name_every_mode():
    page = (FOLDER / "gpu.md").read_text(encoding="utf-8")
    described = benchmark("gpu.py", "--help").stdout
    assert [
        mode for mode in MODES if f"| `{mode}` |" not in page or f"    {mode} " not in described
    ] == []
