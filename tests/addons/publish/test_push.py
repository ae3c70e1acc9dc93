"""Models are published by real processes, and give the same text afterwards."""

import importlib.util
from pathlib import Path

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.hub.server import READER, WRITER
from wenet_uio.addons.publish.stage import LICENCES, check_licence, stage_model
from wenet_uio.base.hub_address import HubAddress
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_raw_list

LICENCE = ("--license", "apache-2.0")


@pytest.fixture
def push(call, model, hub):
    """A function that runs `push` with the token of a writer; no output has a token."""

    def run(*arguments, token=WRITER, **environment):
        tokens = {"HF_TOKEN": token} if token else {}
        done = call("push", *arguments, **tokens, **environment)
        for secret in (WRITER, READER, token):
            assert not secret or secret not in done.stdout + done.stderr
        return done

    return run


def files_of(hub, name, branch="main"):
    files = hub.models[name].files(branch)
    return {file: content for file, content in files.items() if file != ".gitattributes"}


def uploads(hub):
    return [request for request in hub.requests if request.startswith("PUT large/")]


def text_of(call, address, **environment):
    options = ("--device", "cpu", "--pause", "0")  # the audio is noise: nothing may look for speech
    done = call("transcribe", "--model", address, *options, "a.wav", HF_TOKEN=READER, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    return done.stdout


def test_a_model_that_is_pushed_and_pulled_gives_the_same_text(push, call, hub, model):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    done = push(model, "org/new", *LICENCE)
    assert done.returncode == 0, done.stderr
    commit = hub.models["org/new"].branches["main"]
    assert done.stdout.splitlines()[-3:] == [
        "licence: apache-2.0",
        f"source: {hub.endpoint}/org/new at {commit}",
        "hf://org/new",
    ]
    assert set(files_of(hub, "org/new")) == {"README.md", "avg.pt", "train.yaml", "units.txt"}
    assert files_of(hub, "org/new")["avg.pt"] == before["avg.pt"]
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    assert text_of(call, "hf://org/new") == text_of(call, model)
    assert "licence: apache-2.0" in call("pull", "org/new").stdout


def test_the_card_on_the_hub_has_licence_base_and_use(push, hub, model):
    start = {"from": "hf://org/base@v1", "from_commit": "c" * 40, "ranks": 1}
    (model / "environment.yaml").write_text(yaml.safe_dump([start]))
    done = push(model, "org/new", *LICENCE, "--revision", "v2")
    assert "trained from: org/base; its licence may apply to this model, too" in done.stdout
    card = files_of(hub, "org/new", "v2")["README.md"].decode()
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["license"], front["base_model"]) == ("apache-2.0", "org/base")
    assert front["library_name"] == "wenet_uio"
    assert 'wenet_uio.from_pretrained("org/new@v2")' in card
    assert "wenet-uio transcribe --model hf://org/new@v2 talk.mp3" in card
    assert f"| trained from | hf://org/base@v1 |\n| its commit | {'c' * 40} |" in card
    assert "load_model" not in card


def test_the_card_of_weights_that_were_not_decoded_has_no_error_rates(push, hub, model):
    rates = model / "attention/wer"
    rates.parent.mkdir()
    rates.write_text("Overall -> 12.50 % N=8 C=7 S=1 D=0 I=0\n")
    (model / "epoch_0.pt").write_bytes((model / "avg.pt").read_bytes())
    assert push(model, "org/new", *LICENCE).returncode == 0
    assert "| attention | 12.50 |" in files_of(hub, "org/new")["README.md"].decode()
    assert push(model / "epoch_0.pt", "org/first", *LICENCE).returncode == 0
    card = files_of(hub, "org/first")["README.md"].decode()
    assert "Not measured: these are the weights of epoch_0.pt" in card
    assert "12.50" not in card


def test_a_licence_without_an_identifier_has_a_name_which_another_licence_removes(push, hub, model):
    def front() -> dict:
        return yaml.safe_load(files_of(hub, "org/new")["README.md"].decode().split("---\n")[1])

    named = ("--license", "other", "--license_name", "ours-1.0")
    assert push(model, "org/new", *named).returncode == 0
    assert (front()["license"], front()["license_name"]) == ("other", "ours-1.0")

    (model / "README.md").write_bytes(files_of(hub, "org/new")["README.md"])
    for licence in ((), ("--license", "other")):
        assert push(model, "org/new", *licence).returncode == 0
        assert (front()["license"], front()["license_name"]) == ("other", "ours-1.0")
    assert push(model, "org/new", *LICENCE).returncode == 0
    assert front()["license"] == "apache-2.0"
    assert "license_name" not in front()


def test_a_licence_that_the_hub_alone_refuses_is_its_message(push, hub, model):
    (model / "README.md").write_text("---\nlicense: none-such\n---\n# our model\n")
    done = push(model, "org/new")
    assert done.returncode == 1
    assert '"license" must be one of' in done.stderr


def test_a_misspelt_licence_is_refused_before_anything_is_read_or_asked(push, hub, model):
    for licence in sorted(LICENCES):
        with pytest.raises(ValueError, match="did you mean"):
            check_licence(f"{licence[:2]}_{licence[2:]}", None)
        check_licence(licence, None)
    done = push("exp/none", "org/new", "--license", "Apache-2.0", "--dry_run")
    assert "--license Apache-2.0: the hub has no licence of this name; did you mean" in done.stderr
    assert hub.requests == []


def test_what_is_there_with_the_same_digest_is_not_sent_again(push, hub, model):
    assert push(model, "org/new", *LICENCE).returncode == 0
    first = hub.models["org/new"].branches["main"]
    assert len(uploads(hub)) == 1

    assert push(model, "org/new", *LICENCE).returncode == 0
    assert hub.models["org/new"].branches["main"] == first
    assert push(model, "org/new", "--license", "mit").returncode == 0
    assert hub.models["org/new"].branches["main"] != first
    assert push(model, "org/other", *LICENCE).returncode == 0
    assert len(uploads(hub)) == 1


def test_an_upload_that_fails_publishes_nothing_and_the_next_one_sends_the_rest(hub, tmp_path):
    staged = tmp_path / "staged"
    (staged / "offline").mkdir(parents=True)
    names = ["train.yaml", *(f"offline/{part}.onnx" for part in ("ctc", "decoder", "encoder"))]
    for name in names:
        (staged / name).write_text(f"content of {name}")
    script = (
        "from pathlib import Path\n"
        "from wenet_uio.base.cli import run\n"
        "from wenet_uio.base.hub_address import HubAddress\n"
        "from wenet_uio.addons.publish.push import push\n"
        "from wenet_uio.addons.publish.stage import Staged\n"
        f"staged = Staged(Path('staged'), {tuple(names)}, 'mit', None)\n"
        "run(lambda: print(push(staged, HubAddress('org/new')).commit))\n"
    )
    (tmp_path / "script.py").write_text(script)

    def run():
        environment = hub.environment(tmp_path / "cache", HF_TOKEN=WRITER)
        return preloaded.run(["script.py"], env=environment, cwd=tmp_path)

    hub.full_at = 2
    done = run()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: org/new: the upload to ")
    assert done.stderr.splitlines()[-1].endswith("files that are there are not sent again")
    assert files_of(hub, "org/new") == {}
    assert len(hub.stored) == 2

    hub.full_at = None
    hub.requests.clear()
    done = run()
    assert done.returncode == 0, done.stderr
    assert len(uploads(hub)) == 1
    assert set(files_of(hub, "org/new")) == set(names)


def test_a_dry_run_lists_the_files_and_needs_neither_a_server_nor_a_token(push, hub, model):
    done = push(model, "org/new", *LICENCE, "--dry_run", token=None)
    assert done.returncode == 0, done.stderr
    size = (model / "avg.pt").stat().st_size
    assert f"{size:>14,} bytes  avg.pt" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "dry run: nothing is uploaded to hf://org/new"
    assert hub.requests == []
    (model / "avg.pt").write_bytes(b"damaged")
    assert push(model, "org/new", *LICENCE, "--dry_run").returncode == 1


@pytest.mark.all
def test_a_private_model_is_read_with_a_token_only(push, call, hub, model):
    assert push(model, "org/new", *LICENCE, "--private").returncode == 0
    assert hub.models["org/new"].private
    assert "HF_TOKEN" in call("pull", "org/new").stderr
    assert call("pull", "org/new", HF_TOKEN=READER).returncode == 0

    assert push(model, "org/open", *LICENCE).returncode == 0
    files = files_of(hub, "org/open")
    (model / "units.txt").write_text((model / "units.txt").read_text() + "\n")
    done = push(model, "org/open", *LICENCE, "--private")
    assert "error: org/open: it is public already" in done.stderr
    assert files_of(hub, "org/open") == files


def test_a_branch_is_made_and_the_main_branch_stays(push, hub, model):
    done = push(model, "org/new", *LICENCE, "--revision", "small/v1")
    assert done.stdout.splitlines()[-1] == "hf://org/new@small/v1"
    assert files_of(hub, "org/new") == {}
    assert "avg.pt" in files_of(hub, "org/new", "small/v1")
    assert push(model, "org/new@small/v1", "--license", "mit").returncode == 0


def test_files_of_another_model_are_deleted_only_if_that_is_asked_for(push, hub, model):
    old = {"final.pt": b"other", "offline/encoder.onnx": b"other"}
    users = {"LICENSE": b"text", "examples/a.wav": b"RIFF", "best.pt": b"of the user"}
    hub.put("org/new", old | users)
    done = push(model, "org/new", *LICENCE)
    assert "final.pt, offline/encoder.onnx: of another model" in done.stderr
    assert files_of(hub, "org/new") == old | users
    done = push(model, "org/new", *LICENCE, "--replace")
    assert "deleted there: final.pt, of an earlier model" in done.stdout
    files = files_of(hub, "org/new")
    assert {name: files[name] for name in users} == users
    assert set(files) - set(users) == {"README.md", "avg.pt", "train.yaml", "units.txt"}


@pytest.mark.all
def test_weights_by_another_name_are_published_as_those_of_a_folder(push, call, hub, model):
    (model / "avg.pt").rename(model / "epoch_7.pt")
    done = push(model, "org/new", *LICENCE)
    assert f"error: {model}: neither avg.pt nor final.pt in it" in done.stderr
    assert push(model / "epoch_7.pt", "org/new", *LICENCE).returncode == 0
    assert "final.pt" in files_of(hub, "org/new")
    assert text_of(call, "hf://org/new") == text_of(call, model / "epoch_7.pt")


@pytest.mark.parametrize("kind", ["jit", pytest.param("onnx", marks=pytest.mark.all)])
def test_an_export_is_published_without_the_weights(push, call, hub, model, tmp_path, kind):
    if kind == "onnx" and not importlib.util.find_spec("onnx"):
        pytest.skip("onnx is not installed")
    into = {"jit": ["--output_file", model / "best.zip"], "onnx": ["--output_dir", model / "onnx"]}
    line = RawLine("a", str(tmp_path / "a.wav"), "ab")
    assert make_raw_list([line], tmp_path / "a.list") == []
    named = ("--config", model / "train.yaml", "--checkpoint", model / "avg.pt")
    done = call(f"export_{kind}", *named, "--check_data", "a.list", *into[kind])
    assert done.returncode == 0, done.stderr
    export = into[kind][1]

    done = push(export, "org/new", *LICENCE)
    assert done.returncode == 0, done.stderr
    files = set(files_of(hub, "org/new"))
    assert "avg.pt" not in files
    if kind == "jit":
        assert "final.zip" in files
    else:
        assert {f"offline/{part}.onnx" for part in ("encoder", "ctc", "decoder")} <= files
    assert text_of(call, "hf://org/new") == text_of(call, export)


def test_no_path_of_the_machine_and_no_data_are_published(hub, model, tmp_path):
    values = yaml.safe_load((model / "train.yaml").read_text())
    units = model / "units.txt"
    units.rename(tmp_path / "the units.txt")
    values["tokenizer_conf"]["symbol_table_path"] = str(tmp_path / "the units.txt")
    noise = {"data_list": str(tmp_path / "secret project/noise.list"), "prob": 0.5}
    values["dataset_conf"]["noise_conf"] = noise
    values["ctc_texts"] = "s3://KEY:SECRET@bucket/texts"
    (model / "train.yaml").write_text(
        yaml.safe_dump(values | {"data": str(tmp_path / "x.list"), "cv_data": "s3://a:b@c/d"})
    )
    (tmp_path / "staged").mkdir()
    staged = stage_model(model, tmp_path / "staged", HubAddress("org/new"), licence="mit")
    for name in staged.files:
        content = (staged.folder / name).read_bytes()
        for secret in (str(tmp_path).encode(), b"secret project", b"SECRET", b"s3://a"):
            assert secret not in content, name
    published = yaml.safe_load((staged.folder / "train.yaml").read_text())
    assert published["tokenizer_conf"]["symbol_table_path"] == "units.txt"
    assert published["dataset_conf"]["noise_conf"]["data_list"] == "noise.list"
    assert "x.list" not in (staged.folder / "train.yaml").read_text()


def test_a_card_that_a_person_wrote_is_published_as_it_is(push, hub, model):
    card = "---\nlicense: cc-by-4.0\n---\n# our model\n"
    (model / "README.md").write_text(card)
    done = push(model, "org/new", *LICENCE)
    assert "README.md: licence cc-by-4.0, and --license apache-2.0; change one" in done.stderr
    assert push(model, "org/new").returncode == 0
    assert files_of(hub, "org/new")["README.md"].decode() == card
    (model / "README.md").write_text("# our model\n")
    assert "the licence of the model is not known" in push(model, "org/new", *LICENCE).stderr
    (model / "README.md").write_text("---\nlicense: other\nlicense_name: a\n---\n")
    done = push(model, "org/new", "--license", "other", "--license_name", "b")
    assert "README.md: license_name a, and --license_name b; change one" in done.stderr


@pytest.mark.third
@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ([], {}, "the licence of the model is not known: --license names it"),
        (LICENCE, {"token": None}, "org/new: no token: set HF_TOKEN"),
        (LICENCE, {"token": READER}, "org/new: the token may not write this model"),
        (LICENCE, {"token": "hf_unknown"}, "does not accept the token"),
        (LICENCE, {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        (LICENCE, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "the upload to http://127.0.0.1:9 failed"),
        (["--license", "apache2.0"], {}, "no licence of this name; did you mean apache-2.0? A"),
        (["--license", "xyzzy"], {}, "no licence of this name. A licence without an identifier is"),
        (["--license", "mit", "--license_name", "ours"], {}, "give --license other too"),
        ([*LICENCE, "--revision", "c" * 40], {}, "a commit cannot be changed; give a branch"),
    ],
)
def test_what_cannot_be_pushed_is_one_line(push, hub, model, arguments, environment, message):
    done = push(model, "org/new", *arguments, **environment)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "org/new" not in hub.models or files_of(hub, "org/new") == {}


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("exp/none", "org/new", "error: exp/none: no such file or folder"),
        ("exp", "org/new", "error: exp: expected a folder with train.yaml"),
        ("exp/run", "new", "error: new: expected a model of the form org/name"),
    ],
)
def test_a_model_that_is_not_there_is_one_line(push, hub, path, name, message):
    done = push(path, name, *LICENCE)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(message)
    assert hub.requests == []


def test_a_model_that_cannot_be_loaded_is_not_published(push, hub, model):
    weights = torch.load(model / "avg.pt", weights_only=True)
    weights.pop("encoder.after_norm.weight")
    torch.save(weights, model / "avg.pt")
    assert push(model, "org/new", *LICENCE).returncode == 1
    Path(model, "units.txt").unlink()
    assert "units.txt" in push(model, "org/new", *LICENCE).stderr
    assert hub.requests == []


def test_a_file_that_the_hub_ignores_is_named(push, hub, model):
    hub.ignored.add("units.txt")
    done = push(model, "org/new", *LICENCE)
    assert "error: hf://org/new: not uploaded: units.txt; see its .gitignore" in done.stderr
