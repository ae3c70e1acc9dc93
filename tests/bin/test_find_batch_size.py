from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from tests.support import preloaded
from tests.support.train.training_corpus import write_corpus
from wenet_uio.config.batch import BatchConf

ROOT = Path(__file__).parents[2]


def find(folder: Path, *options: str) -> CompletedProcess[str]:
    arguments = [
        "train.list",
        "--data_type",
        "raw",
        "--config",
        "train.yaml",
        "--device",
        "cpu",
        *options,
    ]
    return preloaded.run([ROOT / "tools/find_batch_size.py", *arguments], cwd=folder)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """22 utterances of half a second and more."""
    return write_corpus(tmp_path)


def test_yaml_for_batch_conf_is_printed(corpus: Path) -> None:
    done = find(corpus, "--memory", "3GB", "--num_bins", "2", "--ranks", "2")
    assert done.returncode == 0, done.stderr
    conf = BatchConf(**yaml.safe_load(done.stdout)["batch_conf"])
    assert len(conf.bucket_duration_bins) == 2
    assert sum(conf.bucket_batch_size) == 22, "memory suffices for all of these"
    assert "utterances of 78 frames and 2 tokens" in done.stderr
    assert "max_frames_in_batch: " in done.stdout


def test_too_little_memory_is_an_error_in_one_line(corpus: Path) -> None:
    done = find(corpus, "--memory", "100MB")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "error: up to 0.8 s: not one utterance of 78 frames and 2 tokens"
    )
    assert "--memory is needed on a CPU" in find(corpus).stderr
