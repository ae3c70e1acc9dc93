"""Models from a mirror on loopback, by real processes."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

from tests.support.models.recogniser import CONFIG
from wenet_uio.config import load_config
from wenet_uio.models import build_model

pytest.importorskip("huggingface_hub")
COMMIT = "c" * 40
CARD = b"---\nlicense: apache-2.0\n---\n# a model\n"
WEIGHTS = bytes(range(256)) * 4096
FILES = {"README.md": CARD, "train.yaml": b"model: none\n", "avg.pt": WEIGHTS}


class Mirror(ThreadingHTTPServer):
    """Speaks what huggingface_hub asks for; `org/private` needs the token `secret`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.models = {"org/name": FILES, "org/private": FILES, "org/empty": {"README.md": CARD}}
        self.sent = {}
        self.cut_after = None
        self.ranges = []


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        return

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **dict(headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0].strip("/")
        api = path.startswith("api/models/")
        name = "/".join(path.removeprefix("api/models/").split("/")[:2])
        files = self.server.models.get(name)
        token = self.headers.get("Authorization") == "Bearer secret"
        if files is None or (name == "org/private" and not token):
            self.answer(401, headers={"X-Error-Code": "RepoNotFound"})
        elif not api:
            self.file(name, path.split("/", 4)[4], files)
        elif "/tree/" in path:
            self.tree(files)
        elif "/revision/" in path and path.rpartition("/")[2] not in ("main", COMMIT):
            self.answer(404, headers={"X-Error-Code": "RevisionNotFound"})
        else:
            siblings = [{"rfilename": file} for file in files]
            info = {"id": name, "modelId": name, "sha": COMMIT, "tags": [], "siblings": siblings}
            self.answer(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    def tree(self, files):
        entries = [
            {"type": "file", "path": file, "size": len(body), "oid": git_digest(body)}
            for file, body in files.items()
        ]
        self.answer(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})

    def file(self, name, file, files):
        body = self.server.sent.get(file, files[file])
        digest = hashlib.sha256 if file == "avg.pt" else git_digest
        etag = digest(files[file])
        etag = etag if isinstance(etag, str) else etag.hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range")
        start = int(asked.split("=")[1].split("-")[0]) if asked else 0
        if self.command == "GET" and file == "avg.pt":
            self.server.ranges.append(start)
        if self.command == "GET" and file == "avg.pt" and self.server.cut_after is not None:
            cut_after, self.server.cut_after = self.server.cut_after, None
            self.send_response(200)
            for key, value in {**headers, "Content-Length": len(body)}.items():
                self.send_header(key, str(value))
            self.end_headers()
            self.wfile.write(body[:cut_after])
            self.close_connection = True
            return
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self.answer(206 if start else 200, body[start:], headers)


def git_digest(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@pytest.fixture
def mirror():
    server = Mirror()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def pull(mirror, tmp_path):
    def call(*arguments, **environment):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        known = {
            "HF_ENDPOINT": f"http://127.0.0.1:{mirror.server_port}",
            "HF_HOME": str(tmp_path / "cache"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        command = [sys.executable, "-m", "wenet_uio.bin.pull", *arguments]
        return subprocess.run(
            command, env={**kept, **known, **environment}, capture_output=True, text=True
        )

    return call


def test_a_model_is_pulled_with_its_licence_and_found_offline_later(pull, mirror):
    done = pull("org/name")
    assert done.returncode == 0, done.stderr
    source, licence, folder = done.stdout.splitlines()
    assert source == f"source: http://127.0.0.1:{mirror.server_port}/org/name at {COMMIT}"
    assert licence == "licence: apache-2.0"
    assert Path(folder, "avg.pt").read_bytes() == WEIGHTS
    mirror.models.clear()
    assert pull("hf://org/name", "--offline").stdout.splitlines()[2] == folder
    assert pull("org/name", HF_HUB_OFFLINE="1").stdout.splitlines()[2] == folder


def test_a_wrong_digest_is_refused_and_the_next_pull_repairs_it(pull, mirror):
    mirror.sent["avg.pt"] = WEIGHTS[:-1] + b"x"
    done = pull("org/name")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: avg.pt: wrong digest")
    mirror.sent.clear()
    assert pull("org/name").returncode == 0


def test_a_download_that_was_cut_is_resumed_where_it_stopped(pull, mirror):
    """huggingface_hub writes 10 MiB at a time."""
    weights = WEIGHTS * 16
    mirror.models["org/name"] = FILES | {"avg.pt": weights}
    mirror.cut_after = 12 << 20
    done = pull("org/name")
    assert done.returncode == 0, done.stderr
    assert mirror.ranges == [0, 10 << 20]
    folder = done.stdout.splitlines()[2]
    assert Path(folder, "avg.pt").read_bytes() == weights


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["org/none"], "no such model"),
        (["org/private"], "HF_TOKEN"),
        (["org/name", "--revision", "v9"], "no revision v9"),
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
    assert pull("org/private", HF_TOKEN="secret").returncode == 0


def test_the_command_and_the_interface_take_a_model_of_the_hub(mirror, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    units = ["<blank>", "<unk>", "<sos/eos>", *"abcdefgh"]
    lines = "".join(f"{unit} {place}\n" for place, unit in enumerate(units))
    Path("units.txt").write_text(lines, encoding="utf-8")
    Path("train.yaml").write_text(yaml.safe_dump(CONFIG))
    torch.save(build_model(load_config("train.yaml")).state_dict(), "avg.pt")
    names = ("units.txt", "train.yaml", "avg.pt")
    mirror.models["org/run"] = {name: Path(name).read_bytes() for name in names}
    for name in names:
        Path(name).unlink()

    noise = np.random.default_rng(0).standard_normal(16000)
    soundfile.write("a.wav", 0.1 * noise, 16000)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    known = {"HF_ENDPOINT": f"http://127.0.0.1:{mirror.server_port}", "HF_HOME": str(tmp_path)}
    code = "import wenet_uio; print(wenet_uio.from_pretrained('org/run', device='cpu').sample_rate)"
    transcribe = ["-m", "wenet_uio.bin.transcribe", "--model", "hf://org/run", "--device", "cpu"]
    for arguments in (["-c", code], [*transcribe, "a.wav"]):
        done = subprocess.run(
            [sys.executable, *arguments], env=kept | known, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        if arguments[0] == "-c":
            assert done.stdout == "16000\n"
