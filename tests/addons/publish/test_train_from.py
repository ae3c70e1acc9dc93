"""`train.py --from hf://org/name`."""

from pathlib import Path

import pytest
import torch
import yaml

from tests.bin.test_train_from import FINE_TUNING, train
from tests.support.hub.server import running_hub
from tests.support.train.training_corpus import write_corpus
from wenet_uio.train.start import is_same_model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a corpus and `base`, the folder of a run."""
    folder = write_corpus(tmp_path_factory.mktemp("home"))
    status, stderr = train(folder, "base", "--override_config", "max_epoch=1", config="train.yaml")
    assert status == 0, stderr
    (folder / "finetune.yaml").write_text(yaml.safe_dump(FINE_TUNING))
    return folder


def content(run: Path) -> dict[str, bytes]:
    names = yaml.safe_load((run / "train.yaml").read_text())["tokenizer_conf"]
    files = ["train.yaml", "final.pt", names["symbol_table_path"], "global_cmvn"]
    return {name: (run / name).read_bytes() for name in files if (run / name).is_file()}


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)


@pytest.mark.all
def test_two_ranks_download_a_model_once_and_the_run_resumes_without_the_hub(home, tmp_path):
    with running_hub() as hub:
        commit = hub.put("org/base", content(home / "base"), branch="v1")
        environment = hub.environment(tmp_path / "cache")
        options = ("--from", "hf://org/base", "--revision", "v1")
        status, stderr = train(home, "tuned", *options, ranks=2, environment=environment)
        assert status == 0, stderr
        assert hub.ranges == [0]
        assert f"org/base: licence not stated, from {hub.endpoint}/org/base at {commit}" in stderr
        first, last = weights(home / "tuned/init.pt"), weights(home / "base/final.pt")
        assert all(torch.equal(first[name], last[name]) for name in last)

    more = ("--override_config", "max_epoch=2")
    address = "hf://org/base@v1"
    status, stderr = train(home, "tuned", "--from", address, *more, environment=environment)
    assert status == 0, stderr
    assert (home / "tuned/epoch_1.pt").exists()
    starts = yaml.safe_load((home / "tuned/environment.yaml").read_text())
    assert [(start["from"], start["from_commit"]) for start in starts] == [(address, commit)] * 2

    for other in ("hf://org/base", "hf://org/base@v2", "hf://org/other@v1", "base", ""):
        named = ["--from", other] if other else []
        status, stderr = train(home, "tuned", *named, environment=environment)
        assert status == 1
        other = other or "new weights"
        assert f"error: tuned: this run began from {address}, not from {other}" in stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "hf://org/none"], "error: org/none: no such model"),
        (["--from", "hf://name"], "error: hf://name: expected a model of the form org/name"),
        (["--from", "org/name"], "no such file or folder; a model of a hub is hf://org/name"),
        (["--from", "base", "--revision", "v1"], "only a model of a hub has revisions"),
        (["--revision", "v1"], "error: --revision v1: it belongs to --from hf://org/name"),
    ],
)
def test_a_start_that_is_not_there_is_one_line(home, tmp_path, options, message):
    with running_hub() as hub:
        environment = hub.environment(tmp_path / "cache")
        status, stderr = train(home, "none", *options, environment=environment)
    assert status == 1
    assert len(stderr.splitlines()) == 1
    assert message in stderr
    assert not (home / "none").exists()


COMMIT = "c" * 40


@pytest.mark.parametrize(
    ("named", "began_from", "same"),
    [
        ("hf://org/name", "hf://org/name", True),
        (f"hf://org/name@{COMMIT}", "hf://org/name", True),
        (f"hf://org/name@{COMMIT}", "hf://org/name@v1", True),
        ("hf://org/name", "hf://org/name@v1", False),
        (f"hf://org/other@{COMMIT}", "hf://org/name", False),
        ("hf://org/name", "org/name", False),
        ("org/name", "hf://org/name", False),
        ("exp/a/../b", "exp/b", True),
    ],
)
def test_a_run_resumes_from_the_model_that_it_began_from(named, began_from, same):
    assert is_same_model(named, began_from, COMMIT) is same
