import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import preloaded

ROOT = Path(__file__).parents[3]


def benchmark(name, *arguments, before=()):
    """Run a benchmark; modules in the folders `before` hide installed modules of the same name."""
    path = os.pathsep.join(map(str, [*before, ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]))
    return preloaded.run(
        [ROOT / "lab" / "benchmark" / name, *arguments], env={**os.environ, "PYTHONPATH": path}
    )


@pytest.fixture
def without_lhotse(tmp_path):
    (tmp_path / "lhotse.py").write_text("raise ModuleNotFoundError(\"No module named 'lhotse'\")\n")
    return tmp_path


@pytest.mark.all
def test_plan_scale_measures_every_world_size():
    done = benchmark("plan_scale.py", "--shards", 200, "--world_size", 8, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["shards"] == 200
    assert min(report[name] for name in ("first_batch_s", "memory_mb", "ms_per_step")) > 0
    assert [result["world_size"] for result in report["by_world_size"]] == [1, 8]


def test_plan_mixing_measures_every_corpus_for_every_number_of_ranks():
    done = benchmark("plan_mixing.py", "--utterances", 500, 2000, "--shard_size", 100, "--json")
    assert done.returncode == 0, done.stderr
    corpora = json.loads(done.stdout.splitlines()[-1])["corpora"]
    assert [(each["utterances"], each["ranks"]) for each in corpora] == [
        (500, 1),
        (500, 8),
        (2000, 1),
        (2000, 8),
    ]
    assert all(0 < each["mates_again"] < 100 and each["padding"] > 0 for each in corpora)


def test_plan_vs_lhotse_prints_its_help_without_lhotse(without_lhotse):
    done = benchmark("plan_vs_lhotse.py", "--help", before=[without_lhotse])
    assert done.returncode == 0, done.stderr
    assert "--batch_duration" in done.stdout


def test_plan_vs_lhotse_names_the_missing_package(without_lhotse):
    done = benchmark("plan_vs_lhotse.py", before=[without_lhotse])
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "pip install lhotse" in done.stderr


def worktrees():
    return subprocess.run(
        ["git", "-C", ROOT, "worktree", "list"], capture_output=True, text=True
    ).stdout


@pytest.mark.all
def test_against_runs_a_benchmark_at_an_earlier_commit_and_here():
    if not (before := worktrees()):
        pytest.skip("not a clone: there are no commits")
    size = ("--steps", 1, "--repeats", 1, "--batch_size", 1, "--seconds", 0.5, "--threads", 1)
    done = benchmark("against.py", "HEAD", "train_step.py", "--turns", 1, "--json", *size)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert set(figures) <= {"audio_seconds_per_second", "fastest", "audio_seconds_per_cpu_second"}
    assert figures
    assert all(0.1 < each["then"] / each["now"] < 10 for each in figures.values())
    for arguments, message in (
        (("no-such-commit", "train_step.py"), "error: commit no-such-commit: "),
        (("HEAD", "none.py"), "No such file or directory"),
        (("HEAD", "train_step.py", "--turns", 0), "error: --turns: expected 1 or more, found 0"),
    ):
        failed = benchmark("against.py", *arguments)
        assert failed.returncode == 1
        assert message in failed.stderr
        assert len(failed.stderr.strip().splitlines()) == 1
    assert worktrees() == before


def test_train_step_measures_a_step():
    size = ("--steps", 1, "--repeats", 1, "--batch_size", 2, "--seconds", 0.5, "--threads", 1)
    done = benchmark("train_step.py", *size, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["parameters"], report["threads"]) == (4_582_328, 1)
    assert report["audio_seconds_per_second"] > 0


def test_rnnt_loss_compares_with_torchaudio():
    size = (
        "--batch_sizes",
        2,
        8,
        "--frames",
        8,
        "--labels",
        3,
        "--units",
        20,
        "--spread",
        0.5,
        "--repeats",
        1,
    )
    done = benchmark("rnnt_loss.py", *size, "--memory", 5e-5, "--json")
    assert done.returncode == 0, done.stderr
    both, alone = json.loads(done.stdout.splitlines()[-1])["results"]
    assert both["apart"] < 1e-4
    assert both["speed_ratio"] > 0
    assert both["scores_gb"] * 4 == pytest.approx(alone["scores_gb"], rel=0.01)
    assert set(alone) == {"batch", "scores_gb", "ours"}


@pytest.mark.all
def test_long_audio_measures_input_layers_and_the_memory_of_both_kinds_of_attention():
    size = (
        "--repeats",
        1,
        "--batch_size",
        1,
        "--seconds",
        0.5,
        "--minutes",
        0.1,
        "--full_minutes",
        0.1,
    )
    done = benchmark("long_audio.py", *size, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert [each["input_layer"] for each in report["speed"]] == ["conv2d", "dwconv2d8"]
    assert [each["att_context_size"] for each in report["memory"]] == [[128, 128], [-1, -1]]
    assert all(each["frames"] == (600 - 15) // 8 + 1 for each in report["memory"])


@pytest.mark.skipif(find_spec("lhotse") is None, reason="lhotse is not installed")
def test_plan_vs_lhotse_compares_at_one_and_at_64_ranks():
    done = benchmark(
        "plan_vs_lhotse.py", "--utterances", 4000, "--batch_duration", 60, "--repeats", 1, "--json"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    figures = ("ms_per_step_ours", "ms_per_step_lhotse", "padding_ours", "padding_lhotse")
    assert min(report[name] for name in figures) > 0
    assert [result["world_size"] for result in report["by_world_size"]] == [1, 64]
    for result in report["by_world_size"]:
        assert result["ours"]["equal_steps"]
        assert result["ours"]["over_bound"] == 0
        assert result["ours"]["utterances"] == 4000


def test_decode_finds_the_same_texts_as_the_plain_search():
    done = benchmark("decode.py", "--utterances", 3, "--vocabulary", 20, "--beam_size", 4, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["utterances"] == 3
    for name in ("search", "hot words"):
        assert report[name]["differ"] == 0
        assert report[name]["ratio"] > 0


@pytest.mark.skipif(
    find_spec("kaldi_native_fbank") is None, reason="kaldi-native-fbank is not installed"
)
def test_fbank_compares_with_torchaudio_and_kaldi_native_fbank():
    done = benchmark("fbank.py", "--repeats", 1, "--seconds", 1, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ratio_to_torchaudio"] > 0
    assert 0 < report["max_error"] <= 1e-3


@pytest.mark.all
@pytest.mark.skipif(
    find_spec("webdataset") is None or find_spec("lhotse") is None,
    reason="webdataset or lhotse is not installed",
)
def test_loader_gives_every_loader_the_same_audio():
    kinds = [
        "shard",
        "raw",
        "shard_cold",
        "raw_cold",
        "shard_noise",
        "raw_noise",
        "waveform",
        "flac",
    ]
    kinds += [
        "decoding",
        "parquet",
        "parquet_unpacked",
        "nemo",
        "tensors",
        "ark",
        "webdataset",
        "lhotse",
    ]
    options = ("--hours", 0.08, "--repeats", 1, "--workers", 0, "--json")
    done = benchmark("loader.py", *options, "--kinds", *kinds)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ratio_to_best_peer"] > 0
    results = {result["kind"]: result for result in report["results"]}
    assert list(results) == kinds
    for name in (
        "raw_to_shard",
        "raw_to_shard_cold",
        "noise_to_shard",
        "noise_to_raw",
        "flac_to_decoding",
    ):
        assert report[name]["0"] > 0
    assert (
        min(
            result[name]
            for result in results.values()
            for name in ("speed", "first_batch_s", "memory_mb")
        )
        > 0
    )
    seconds = [result["audio_seconds"] for result in results.values()]
    assert max(seconds) - min(seconds) < 2  # the seconds of webdataset are counted in frames


def test_make_shards_compares_packing_with_plain_tar():
    size = ("--hours", 0.02, "--num_utts_per_shard", 4, "--repeats", 1, "--processes", 2)
    done = benchmark("make_shards.py", *size, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["utterances"] == 8
    assert list(report["ratio_to_tar"]) == ["keep 2", "flac 2", "decode 2"]
    assert done.stdout.count("utterances/s") == 1  # one head of the table
    assert min(report["ratio_to_tar"].values()) > 0


def test_index_remote_fetches_less_than_the_tars_and_files_of_long_recordings():
    size = ("--tars", 3, "--large", "3M", "--seconds", 30, "--latency", 0.01, "--repeats", 1)
    size += ("--files", 3, "--formats", "wav", "ogg", "--file_seconds", 30)
    done = benchmark("index_remote.py", *size, "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    names = ["small", "large_30", "files_wav", "files_ogg"]
    assert [row["list"] for row in results] == names
    small, large, wav, ogg = results
    assert small["requests"] == 12
    assert wav["requests"] == ogg["requests"] == 6
    assert 0 < large["mb"] < 1
    assert 0 < wav["mb"] < 0.1 < ogg["mb"]


@pytest.mark.all
@pytest.mark.skipif(find_spec("sherpa_onnx") is None, reason="sherpa-onnx is not installed")
def test_sherpa_compares_both_engines_at_every_number_of_streams(corpora):
    size = ("--blocks", 1, "--width", 32, "--streams", 1, 2, "--seconds", 2)
    done = benchmark("sherpa.py", corpora / "fsdd", *size, "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    engines = ("ours, torch", "ours", "ours int8", "sherpa", "sherpa int8")
    assert [(row["streams"], row["engine"]) for row in results] == [
        (count, engine)
        for count in (0, 1, 2)  # 0: whole recordings
        for engine in engines
    ]
    assert min(row["speed"] for row in results) > 0
    delays = [row["p95_s"] for row in results]
    assert set(delays[: len(engines)]) == {None}
    assert min(delays[len(engines) :]) >= 0  # so small a model is faster than the digits


@pytest.mark.all
def test_simulated_gpus_wait_for_data_only_if_the_store_is_too_slow():
    size = ("--gpus", 4, "--simulated", 4, "--hours", 100, "--steps", 20, "--shard_utterances", 100)
    found = {}
    for bandwidth in ("64G", "50M"):
        done = benchmark("simulate.py", *size, "--store_bandwidth", bandwidth, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        (found[bandwidth],) = report["clusters"]
        assert found[bandwidth]["steps"] == 20
        assert found[bandwidth]["cache_gb"] <= 500
    fast, slow = found.values()
    assert fast["waiting_percent"] < 1
    assert slow["waiting_percent"] > 40
    assert slow["store_gb_per_s"] <= 0.05
    assert slow["needed_gb_per_s"] == fast["needed_gb_per_s"] > 0.1


@pytest.mark.all
def test_the_simulation_fetches_and_caches_the_same_shards_as_a_real_run():
    done = benchmark("simulate.py", "--check", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    simulated, real = report["simulated"], report["real"]
    for exact in ("steps", "shards_fetched", "shard_bytes", "shards_of_nodes", "peak_cache_bytes"):
        assert simulated[exact] == real[exact]
    assert real["shards_fetched"] >= 24
    assert simulated["audio_seconds"] == pytest.approx(real["audio_seconds"], abs=0.1)
    assert simulated["samples_by_range"] > 0


@pytest.mark.all
@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_raw_scale_measures_lists_of_every_length(data_type):
    size = (
        "--utterances",
        200,
        400,
        "--files",
        50,
        "--batches",
        3,
        "--repeats",
        1,
        "--data_type",
        data_type,
    )
    done = benchmark("raw_scale.py", *size, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert [result["utterances"] for result in report["results"]] == [200, 400]
    assert min(min(result.values()) for result in report["results"]) > 0
    assert report["cost_spread"] >= 0


@pytest.mark.all
def test_serve_measures_clients_that_speak_and_withstands_those_that_do_harm(corpora):
    done = benchmark("serve.py", "--quick", "--audio", corpora / "fsdd", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (
        [row["clients"] for row in report["throughput"]]
        == [row["clients"] for row in report["delay"]]
        == [1, 4]
    )
    assert all(
        row["differ"] == 0 and row["audio_per_cpu_second"] > 0 for row in report["throughput"]
    )
    assert all(row["partials"] > 0 and row["partial_p95_s"] > 0 for row in report["delay"])
    assert report["memory"]["by_minutes_mb"]
    mixed = report["mixed"]
    assert [(row["clients"], row["uploads"]) for row in mixed] == [
        (clients, uploads) for uploads in (False, True) for clients in (1, 4)
    ]
    assert all(row["thrown_out"] == row["differ"] == 0 for row in mixed)
    assert all(row["short_refused"] == 0 and row["short_texts"] == 1 for row in mixed[2:])
    faults = report["faults"]
    nothing = {"connections": 0, "clients": 0, "streams": 0, "uploads": 0}
    for held in (faults["after"], faults["after_floods"]):
        assert held == held | nothing | {"files": faults["before"]["files"]}
        # The threads of recordings stay, up to one for each of --max_uploads.
        assert held["threads"] <= faults["before"]["threads"] + 8
    assert faults["text_is_unchanged"]
    assert faults["errors_logged"] == 0
