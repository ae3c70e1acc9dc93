"""Models from a hub on loopback, by real processes."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.hub.server import WRITER

CARD = b"---\nlicense: apache-2.0\n---\n# a model\n"
WEIGHTS = bytes(range(256)) * 4096
FILES = {"README.md": CARD, "train.yaml": b"model: none\n", "avg.pt": WEIGHTS}


@pytest.fixture
def pull(hub, call):
    """A function that runs `pull`; the hub has models."""
    hub.put("org/name", FILES)
    hub.put("org/private", FILES, private=True)
    hub.put("org/empty", {"README.md": CARD})
    return lambda *arguments, **environment: call("pull", *arguments, **environment)


def test_a_model_is_pulled_with_its_licence_and_found_offline_later(pull, hub):
    done = pull("org/name")
    assert done.returncode == 0, done.stderr
    source, licence, folder = done.stdout.splitlines()
    commit = hub.models["org/name"].branches["main"]
    assert source == f"source: {hub.endpoint}/org/name at {commit}"
    assert licence == "licence: apache-2.0"
    assert Path(folder, "avg.pt").read_bytes() == WEIGHTS
    hub.models.clear()
    assert pull("hf://org/name", "--offline").stdout.splitlines()[2] == folder
    assert pull("org/name", HF_HUB_OFFLINE="1").stdout.splitlines()[2] == folder


def test_a_revision_is_a_branch_or_a_commit_in_the_address_or_as_an_option(pull, hub):
    first = hub.models["org/name"].branches["main"]
    second = hub.put("org/name", FILES | {"avg.pt": WEIGHTS[::-1]}, branch="v2")
    for arguments, commit in (
        (["org/name"], first),
        (["org/name@v2"], second),
        (["hf://org/name@v2"], second),
        (["org/name", "--revision", "v2"], second),
        (["org/name", "--revision", first], first),
    ):
        assert Path(pull(*arguments).stdout.splitlines()[2]).name == commit


def test_a_commit_that_the_cache_has_needs_no_server(pull, hub):
    commit = hub.models["org/name"].branches["main"]
    folder = pull("org/name").stdout.splitlines()[2]
    hub.requests.clear()
    assert pull(f"org/name@{commit}").stdout.splitlines()[2] == folder
    assert [request for request in hub.requests if "org/name" in request] == []


def test_an_incomplete_model_of_the_cache_is_no_model_offline(pull, hub):
    done = pull("org/name")
    Path(done.stdout.splitlines()[2], "train.yaml").unlink()
    done = pull("org/name", "--offline")
    assert "not complete in the cache" in done.stderr
    assert pull("org/name").returncode == 0
    assert pull("org/name", "--offline").returncode == 0


def test_a_wrong_digest_is_refused_and_the_next_pull_repairs_it(pull, hub):
    hub.sent["avg.pt"] = WEIGHTS[:-1] + b"x"
    done = pull("org/name")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: avg.pt: wrong digest")
    hub.sent.clear()
    assert pull("org/name").returncode == 0


def test_a_download_that_was_cut_is_resumed_where_it_stopped(pull, hub):
    """huggingface_hub writes 10 MiB at a time."""
    weights = WEIGHTS * 16
    hub.put("org/name", FILES | {"avg.pt": weights})
    hub.cut_after = 12 << 20
    done = pull("org/name")
    assert done.returncode == 0, done.stderr
    assert hub.ranges == [0, 10 << 20]
    folder = done.stdout.splitlines()[2]
    assert Path(folder, "avg.pt").read_bytes() == weights


def test_a_killed_pull_keeps_its_complete_files_and_begins_the_others_again(pull, hub, tmp_path):
    weights = WEIGHTS * 16
    hub.put("org/name", FILES | {"avg.pt": weights})
    hub.cut_after, hub.held = 12 << 20, threading.Event()
    command = [preloaded.python(), "-m", "wenet_uio.bin.pull", "org/name"]
    with subprocess.Popen(command, env=hub.environment(tmp_path / "cache")) as process:
        assert hub.held.wait(60)
        model = tmp_path / "cache/hub/models--org--name"
        # A file is complete when the snapshot links to it
        until(lambda: len(list(model.glob("snapshots/*/*"))) == 2)
        process.kill()

    hub.requests.clear()
    done = pull("org/name")
    assert done.returncode == 0, done.stderr
    assert hub.ranges == [0, 0]
    assert Path(done.stdout.splitlines()[2], "avg.pt").read_bytes() == weights
    assert [request for request in hub.requests if request.endswith("train.yaml")] == []


def until(condition):
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.third
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["org/none"], "no such model"),
        ([f"org/none@{'a' * 40}"], "no such model"),
        (["org/private"], "HF_TOKEN"),
        (["org/name", "--revision", "v9"], "no revision v9"),
        ([f"org/name@{'a' * 40}"], f"no revision {'a' * 40}"),
        (["org/name@v1", "--revision", "v2"], "two revisions"),
        (["org/name", "--offline"], "not complete in the cache"),
        (["org/empty"], "the repository has no weights"),
        (["name"], "expected a model of the form org/name"),
        (["org/../name"], "expected a model of the form org/name"),
        (["org/name/avg.pt"], "expected a model of the form org/name"),
    ],
)
def test_what_cannot_be_pulled_is_one_line(pull, arguments, message):
    done = pull(*arguments)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_a_private_model_needs_the_token(pull):
    assert pull("org/private", HF_TOKEN=WRITER).returncode == 0
