"""Files of examples/large/cluster: SLURM's through stand-ins of its commands, Kubernetes' by their
schemas.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.examples.test_corpora import call, recipe
from tests.examples.test_large import TINY, make_sources
from tests.support import preloaded
from wenet_uio.dataset.formats.data_list import read_shard_list
from wenet_uio.text.table import read_table

__all__ = ["recipe"]

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "large" / "cluster"

SRUN = """\
#!/usr/bin/env bash
# srun: two machines on this one. Signals go to all of them; the status is the highest.
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=0 "$@" & first=$!
SLURM_NODEID=1 "$@" & second=$!
trap 'kill -TERM $first $second' TERM
highest=0
for machine in $first $second; do
  while true; do
    status=0; wait $machine || status=$?
    kill -0 $machine 2>/dev/null || break
  done
  ((status <= highest)) || highest=$status
done
exit $highest
"""
SCONTROL = """\
#!/usr/bin/env bash
case $1 in
  show) printf '127.0.0.1\\nlocalhost\\n' ;;
  requeue) echo "$2" >>requeued ;;
esac
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put stand-ins of SLURM's commands on PATH; returns the folder of submission."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in (("srun", SRUN), ("scontrol", SCONTROL)):
        (commands / name).write_text(script)
        (commands / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    for name, value in (
        ("SLURM_JOB_NODELIST", "host[0-1]"),
        ("SLURM_JOB_NUM_NODES", "2"),
        ("SLURM_JOB_ID", str(os.getpid())),
    ):
        monkeypatch.setenv(name, value)
    return tmp_path


def submit(script: Path, *arguments: str, cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            ["bash", str(script), *arguments],
            cwd=cwd,
            env=preloaded.on_path() | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            # A shell cannot trap what it was started to ignore, as a training in this process leaves it.
            preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        )


def wait_for(text: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a running process has logged a text."""
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)


@pytest.mark.all
def test_a_job_of_slurm_that_is_stopped_goes_back_to_the_queue_and_completes_the_run(
    recipe, slurm, tmp_path, monkeypatch
):
    large = recipe("large")
    monkeypatch.setenv("RECIPE", str(large))
    sources = make_sources(tmp_path / "corpora")
    override = f"{TINY} max_epoch=40"
    prepared = call(
        "bash", large / "run.sh", "--sources", sources, "--nj", "1", "--num_utts_per_shard", "4",
        "--stop_stage", "3", cwd=tmp_path,
    )  # fmt: skip
    assert prepared.returncode == 0, prepared.stderr

    def start(log: Path) -> subprocess.Popen[bytes]:
        arguments = ("--sources", sources, "--override", override, "--dir", "exp/run")
        return submit(CLUSTER / "train.sbatch", *arguments, cwd=slurm, log=log)

    first = start(tmp_path / "first.log")
    wait_for("epoch 1/39", tmp_path / "first.log", first)
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 75, (tmp_path / "first.log").read_text()
    assert (slurm / "requeued").read_text() == f"{os.environ['SLURM_JOB_ID']}\n"
    assert not (large / "exp" / "run" / "final.pt").exists()

    second = start(tmp_path / "second.log")
    assert second.wait(240) == 0, (tmp_path / "second.log").read_text()
    assert (large / "exp" / "run" / "final.pt").exists()
    assert (slurm / "requeued").read_text().count("\n") == 1

    # One run: each epoch ended once, with every utterance.
    logs = "".join((tmp_path / name).read_text() for name in ("first.log", "second.log"))
    ended = re.findall(r"epoch (\d+)/39: 18 utterances: 18 read, 0 filtered, 0 bad", logs)
    assert sorted(map(int, ended)) == list(range(40))


def test_shares_of_a_part_have_every_utterance_once(recipe, tmp_path):
    large = recipe("large")
    make_sources(tmp_path / "corpora")
    part = tmp_path / "corpora" / "one" / "train"
    shutil.copytree(CLUSTER, large.parent / "cluster")
    pack = ("bash", large.parent / "cluster" / "pack_share.sh", part)

    for index in range(3):
        packed = call(*pack, str(index), "3", "--num_utts_per_shard", "4", cwd=tmp_path)
        assert packed.returncode == 0, packed.stderr

    lists = sorted(part.glob("shares/*/data.list"))
    (part / "data.list").write_text("".join(file.read_text() for file in lists))
    keys = []
    for shard in read_shard_list(part / "data.list"):
        with tarfile.open(shard) as tar:
            keys += [Path(name).stem for name in tar.getnames() if name.endswith(".txt")]
    assert sorted(keys) == sorted(read_table(part / "text"))

    wrong = call(*pack, "11", "11", cwd=tmp_path)
    assert wrong.returncode == 1
    assert wrong.stderr == "error: share 11 of 11: expected a number from 0 to COUNT - 1\n"


def objects(name: str) -> list[dict[str, Any]]:
    """Kubernetes objects of its own kinds in a file of the folder."""
    content = yaml.safe_load((CLUSTER / name).read_text())
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}
    if content["kind"] == "JobSet":
        return [job | replicated["template"] for replicated in content["spec"]["replicatedJobs"]]
    if content["kind"] == "RayJob":
        cluster = content["spec"]["rayClusterSpec"]
        groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
        return [pod | group["template"] for group in groups]
    return [content]


@pytest.mark.parametrize("name", ["train.jobset.yaml", "pack.job.yaml", "prepare.rayjob.yaml"])
def test_objects_of_kubernetes_have_its_schema(name):
    import kubernetes_validate

    checkable = objects(name)
    assert checkable
    for content in checkable:
        kubernetes_validate.validate(content, kubernetes_validate.latest_version(), strict=True)


def test_the_jobset_has_the_schema_of_jobsets():
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import (  # 1 s
        JobsetV1alpha2JobSet,
    )

    content = yaml.safe_load((CLUSTER / "train.jobset.yaml").read_text())
    parsed = JobsetV1alpha2JobSet.from_dict(content)
    assert parsed is not None
    assert parsed.to_dict() == content  # a key without a place in the schema would be lost


def test_options_in_the_files_are_options_of_the_recipe():
    known = call("bash", ROOT / "examples/large/s0/run.sh", "--help", cwd=ROOT).stdout
    for path in CLUSTER.iterdir():
        if path.name.startswith("pack"):
            continue
        for option in re.findall(
            r"(?<=[ '])--([a-z]+_[a-z_]+|storage|dir|stage)\b", path.read_text()
        ):
            assert f"  --{option} " in known, f"{path.name}: --{option}"
