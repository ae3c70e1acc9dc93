"""Models of a hub in commands and in Python."""

import pytest

from tests.support import preloaded
from wenet_uio.base.hub_address import name_of
from wenet_uio.config.command_line import local_model

NAMES = ("units.txt", "train.yaml", "avg.pt")


@pytest.fixture
def published(hub, model):
    """The commit of org/run, which the hub has."""
    return hub.put("org/run", {name: (model / name).read_bytes() for name in NAMES})


@pytest.mark.all
def test_python_and_the_command_give_the_same_text_as_the_folder(
    published, hub, call, model, tmp_path
):
    code = (
        "import wenet_uio; r = wenet_uio.from_pretrained('org/run', device='cpu');"
        "print(r.transcribe('a.wav').text)"
    )
    (tmp_path / "use.py").write_text(code)
    python = preloaded.run(["use.py"], env=hub.environment(tmp_path / "cache"), cwd=tmp_path)
    assert python.returncode == 0, python.stderr
    of_folder = call("transcribe", "--model", model, "--device", "cpu", "a.wav")
    assert of_folder.returncode == 0, of_folder.stderr
    assert of_folder.stdout.strip()
    assert python.stdout == of_folder.stdout
    for address in ("hf://org/run", "hf://org/run@main", f"hf://org/run@{published}"):
        done = call("transcribe", "--model", address, "--device", "cpu", "a.wav")
        assert done.stdout == of_folder.stdout, done.stderr


def test_a_revision_is_an_option_of_transcribe(published, hub, call):
    hub.put("org/run", {"avg.pt": b"x"})
    options = ("--model", "hf://org/run", "--device", "cpu")
    done = call("transcribe", *options, "--revision", published, "a.wav")
    assert done.returncode == 0, done.stderr
    done = call("transcribe", *options, "a.wav")
    assert "error: org/run: neither train.yaml nor a model of another package" in done.stderr


@pytest.mark.parametrize("command", ["transcribe", "serve"])
def test_a_revision_of_a_folder_and_the_name_of_a_model_without_hf_are_errors(
    hub, call, model, command
):
    audio = ["a.wav"] if command == "transcribe" else []
    done = call(command, "--model", model, "--revision", "v1", *audio)
    assert "error: --revision v1: only a model of a hub has revisions" in done.stderr
    done = call(command, "--model", "exp/rum", *audio)
    assert done.stderr == (
        "error: exp/rum: no such file or folder; a model of a hub is hf://exp/rum\n"
    )
    assert [request for request in hub.requests if "exp" in request] == []


def test_other_paths_stay_as_they_are(model, monkeypatch):
    monkeypatch.chdir(model.parents[1])
    for path in ("exp/run", str(model), "a/b/c", "none"):
        assert local_model(path) == path


def test_people_see_the_name_of_a_model(model):
    assert name_of("hf://org/run@v1") == "org/run"
    assert name_of(str(model)) == name_of(f"{model}/.") == "run"
