"""Jobs, packing, statistics and a recipe on one Ray cluster, which all tests of this file share."""

from __future__ import annotations

import json
import os
import runpy
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.base.test_executor import crash_at_3
from tests.examples.test_corpora import call, recipe
from tests.examples.test_large import SOURCES, large, make_sources
from tests.support.train.ray_cluster import ray_cluster
from wenet_uio.base.executor import Executor
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.prepare import cmvn_stats
from wenet_uio.prepare.cmvn_stats import cmvn_statistics
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.sharding import ShardOptions, parse_size

__all__ = ["large", "recipe"]

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.all,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.usefixtures("elsewhere"),
]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the cluster was started; RAY_ADDRESS names the cluster."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with ray_cluster(folder) as joining, pytest.MonkeyPatch.context() as environment:
        for name, value in joining.items():
            environment.setenv(name, value)
        import ray  # reads the variables of the token

        yield folder
        ray.shutdown()


def test_ray_runs_the_same_functions_and_raises_the_same_errors():
    executor = Executor(kind="ray")
    assert list(executor.map(parse_size, ["1KB", "2MB", "3GiB"], "t", 3)) == [
        1000,
        2_000_000,
        3 * 2**30,
    ]
    with pytest.raises(ValueError, match="such as 500MB") as caught:
        list(executor.map(parse_size, ["1KB", "many"], "t", 2))
    assert type(caught.value) is ValueError
    squares = executor.map(lambda number: number * number, range(50), "t", 50)
    assert list(squares) == [number * number for number in range(50)]


def test_a_dead_ray_worker_is_an_error():
    with pytest.raises(ChildProcessError, match="a Ray worker died"):
        list(Executor(kind="ray").map(lambda status: os._exit(status), [1], "t", 1))


def test_after_a_crash_of_a_ray_worker_the_job_runs_again_in_a_careful_worker():
    executor = Executor(2, "ray")
    assert list(executor.map(crash_at_3, range(5), "t", 5)) == [0, 1, 2, "SIGSEGV", 4]


def test_packing_on_ray_gives_the_same_bytes(make_utterances, tmp_path):
    lines = make_utterances(12)
    packed = []
    for executor in (Executor(), Executor(kind="ray")):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        make_shard_list(
            lines,
            tmp_path / "s",
            str(tmp_path / "list"),
            ShardOptions(per_shard=4, seed=0),
            executor,
        )
        packed.append(
            {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir() if path.is_file()}
        )
    assert packed[0] == packed[1]
    assert len(packed[0]) == 6


def test_statistics_on_ray_are_the_same(make_utterances, monkeypatch):
    monkeypatch.setattr(cmvn_stats, "UTTERANCES_PER_JOB", 4)
    lines = make_utterances(10)
    conf = DatasetConf()
    assert cmvn_statistics(lines, conf, Executor(kind="ray")) == cmvn_statistics(
        lines, conf, Executor(2)
    )


def test_a_folder_that_is_missing_on_the_cluster_is_named(monkeypatch):
    executor = Executor(kind="ray")
    assert list(executor.map(parse_size, ["1KB"], "t", 1)) == [1000]
    monkeypatch.setattr(os, "getcwd", lambda: "/nowhere")
    with pytest.raises(
        ValueError, match="^/nowhere, the current folder, does not exist on .* all machines"
    ):
        list(executor.map(parse_size, ["1KB"], "t", 1))


def test_a_cluster_that_refuses_the_connection_is_named_with_a_hint(monkeypatch):
    import ray

    def refuse(**_):
        raise ConnectionError("Failed to connect to Ray cluster at host0:6379")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    hint = "at host0:6379: check that a cluster runs .*RAY_ADDRESS.*RAY_AUTH_MODE=token"
    with pytest.raises(ConnectionError, match=hint):
        list(Executor(kind="ray").map(parse_size, ["1KB"], "t", 1))


def test_relative_paths_are_relative_to_the_folder_of_the_caller(
    elsewhere, make_utterances, tmp_path, monkeypatch
):
    lines = make_utterances(5)
    (tmp_path / "wav.scp").write_text(
        "".join(f"{line.key} wav/{Path(line.wav).name}\n" for line in lines)
    )
    (tmp_path / "text").write_text("".join(f"{line.key} {line.text}\n" for line in lines))
    (tmp_path / "train.yaml").write_text("dataset_conf: {}\n")
    monkeypatch.chdir(tmp_path)
    for tool, *options in (
        (
            "make_shard_list.py",
            "--num_utts_per_shard",
            "2",
            "wav.scp",
            "text",
            "shards",
            "shard.list",
        ),
        ("make_raw_list.py", "wav.scp", "text", "raw.list"),
        (
            "compute_cmvn_stats.py",
            "--train_config",
            "train.yaml",
            "--in_scp",
            "wav.scp",
            "--out_cmvn",
            "cmvn",
        ),
    ):
        assert not runpy.run_path(str(ROOT / "tools" / tool))["main"](
            ["--executor", "ray", *options]
        )
    assert list(elsewhere.iterdir()) == []
    listed = (tmp_path / "shard.list").read_text().splitlines()
    assert listed == [f"shards/shards_00000000{number}.tar" for number in range(3)]
    assert all((tmp_path / shard).is_file() for shard in listed)
    assert (
        (tmp_path / "raw.list")
        .read_text()
        .startswith('{"key": "utt0000", "wav": "wav/utt0000.wav"')
    )
    assert json.loads((tmp_path / "cmvn").read_text())["frame_num"] > 0


def test_a_recipe_packs_into_a_store(elsewhere, large, bucket, tmp_path):
    sources = make_sources(tmp_path / "corpora", SOURCES[:1])
    run = ("bash", large / "run.sh", "--sources", sources, "--storage", "s3://corpora/toy")
    assert call(*run, "--stop_stage", "0", cwd=tmp_path).returncode == 0
    options = (
        "--num_utts_per_shard",
        "4",
        "--executor",
        "ray",
        "--stage",
        "3",
        "--stop_stage",
        "3",
    )
    pack = call(*run, *options, cwd=tmp_path)
    assert pack.returncode == 0, pack.stderr
    assert list(elsewhere.iterdir()) == []
    assert len(bucket.glob("corpora/toy/**/*.tar")) == 3
