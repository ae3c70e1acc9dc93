"""A hub on loopback: it speaks the part of the protocol of huggingface_hub that downloads and uploads
need. Weights are stored as large files (LFS), by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.serve.running_server import running

LARGE = (".pt", ".pth", ".bin", ".safetensors", ".zip", ".onnx")
"""Endings of files that the hub stores apart, by their digest."""
ROOT = Path(__file__).resolve().parents[3]
MAIN = "main"
WRITER, READER = "secret-of-the-writer", "secret-of-the-reader"
"""Tokens: both read private models."""


@dataclass
class Repository:
    """A model: its branches and the files of each commit."""

    private: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def put(self, branch: str, files: dict[str, bytes]) -> str:
        """Add a commit to a branch and return its name."""
        content = repr((self.branches.get(branch), sorted(files.items())))
        commit = hashlib.sha1(content.encode()).hexdigest()
        self.branches[branch] = commit
        self.commits[commit] = files
        return commit

    def files(self, revision: str) -> dict[str, bytes] | None:
        """The files of a branch or commit; None: there is no such revision."""
        return self.commits.get(self.branches.get(revision, revision))


class Hub(ThreadingHTTPServer):
    """The server, and what tests look at or change."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.models: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}
        """{digest: content of an uploaded large file}."""
        self.requests: list[str] = []
        """Method and path of each request."""
        self.sent: dict[str, bytes] = {}
        """{file: what is sent in its place}."""
        self.cut_after: int | None = None
        """Bytes after which the next download of weights is cut."""
        self.held: threading.Event | None = None
        """Set when the cut download waits for its end, instead of being closed."""
        self.ranges: list[int] = []
        """First byte of each download of weights."""
        self.ignored: set[str] = set()
        """Files that the .gitignore of the models excludes."""
        self.full_at: int | None = None
        """Number of large files for which there is room."""
        self.storing = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def put(
        self, name: str, files: dict[str, bytes], *, branch: str = MAIN, private: bool = False
    ) -> str:
        """Publish a model and return its commit."""
        return self.models.setdefault(name, Repository(private)).put(branch, files)

    def environment(self, cache: Path, **more: str) -> dict[str, str]:
        """Variables of a process that uses this hub alone."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        known = {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONPATH": str(ROOT),
        }
        return kept | known | more


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a hub in a thread."""
    with running(Hub()) as hub:
        yield hub


def git_digest(body: bytes) -> str:
    """The digest of git."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def large_digest(body: bytes) -> str:
    """The digest of large files."""
    return hashlib.sha256(body).hexdigest()


def is_large(file: str) -> bool:
    """Whether a file is stored by its SHA-256."""
    return file.endswith(LARGE)


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        """Write no log."""

    def answer(self, status: int, body: Any = b"", **headers: object) -> None:
        if not isinstance(body, bytes):
            body, headers = json.dumps(body).encode(), {"Content_Type": "application/json"}
        self.send_response(status)
        for name, value in {"Content_Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status: int, message: str, code: str = "") -> None:
        self.answer(status, b"", X_Error_Code=code, X_Error_Message=message)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    @property
    def token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def handle_any(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append(f"{self.command} {path}")
        routes = {
            r"api/repos/create": self.create,
            r"api/validate-yaml": self.validate,
            r"api/models": self.search,
            r"api/models/([^/]+/[^/]+)/branch/(.+)": self.branch,
            r"api/models/([^/]+/[^/]+)/preupload/(.+)": self.preupload,
            r"api/models/([^/]+/[^/]+)/commit/(.+)": self.commit,
            r"api/models/([^/]+/[^/]+)/tree/(.+)": self.tree,
            r"api/models/([^/]+/[^/]+)(?:/revision/(.+))?": self.info,
            r"([^/]+/[^/]+)\.git/info/lfs/objects/batch": self.batch,
            r"large/([0-9a-f]{64})": self.store,
            r"([^/]+/[^/]+)/resolve/([^/]+)/(.+)": self.file,
        }
        for pattern, action in routes.items():
            if match := re.fullmatch(pattern, path):
                action(*match.groups())
                return
        self.error(404, f"no such address: {path}")

    def do_GET(self) -> None:
        self.handle_any()

    def do_HEAD(self) -> None:
        self.handle_any()

    def do_POST(self) -> None:
        self.handle_any()

    def do_PUT(self) -> None:
        self.handle_any()

    def readable(self, name: str) -> Repository | None:
        """The model, unless an error is answered."""
        model = self.server.models.get(name)
        if model is None or (model.private and self.token not in (WRITER, READER)):
            self.error(401, "Repository not found", "RepoNotFound")
            return None
        return model

    def writable(self, name: str) -> Repository | None:
        """The model, unless an error is answered."""
        model = self.readable(name)
        if model is not None and self.token != WRITER:
            status = 403 if self.token == READER else 401
            self.error(status, f"you cannot write {name}")
            return None
        return model

    def files_at(self, model: Repository, revision: str) -> dict[str, bytes] | None:
        files = model.files(revision)
        if files is None:
            self.error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return files

    def create(self) -> None:
        wanted = json.loads(self.body())
        name = f"{wanted['organization']}/{wanted['name']}"
        if self.token != WRITER:
            self.error(403 if self.token == READER else 401, f"no right to create {name}")
        elif name in self.server.models:
            url = f"{self.server.endpoint}/{name}"
            self.answer(409, {"error": "You already created this model repo", "url": url})
        else:
            self.server.models[name] = Repository(wanted.get("visibility") == "private")
            self.server.models[name].put(MAIN, {".gitattributes": b"*.pt filter=lfs\n"})
            self.answer(200, {"url": f"{self.server.endpoint}/{name}", "id": name})

    def validate(self) -> None:
        content = json.loads(self.body())["content"]
        if "license: none-such" in content:
            message = '"license" must be one of [apache-2.0, mit, ...]'
            self.answer(400, {"errors": [{"message": message}]})
        else:
            self.answer(200, {"errors": [], "warnings": []})

    def search(self) -> None:
        tag = re.search(r"filter=([\w.-]+)", self.path)
        found = [
            {"id": name, "modelId": name, "private": model.private, "tags": []}
            for name, model in self.server.models.items()
            if tag and tag[1].encode() in (model.files(MAIN) or {}).get("README.md", b"")
        ]
        self.answer(200, found)

    def branch(self, name: str, branch: str) -> None:
        self.body()
        if (model := self.writable(name)) is None:
            return
        if branch in model.branches:
            self.error(409, "Reference already exists")
        else:
            model.branches[branch] = model.branches[MAIN]
            self.answer(201, {})

    def preupload(self, name: str, revision: str) -> None:
        wanted = json.loads(self.body())["files"]
        if (model := self.writable(name)) is None:
            return
        if (files := self.files_at(model, revision)) is None:
            return
        digest = {True: large_digest, False: git_digest}
        answer = [
            {
                "path": path,
                "uploadMode": "lfs" if is_large(path) else "regular",
                "shouldIgnore": path in self.server.ignored,
                "oid": digest[is_large(path)](files[path]) if path in files else None,
            }
            for path in (each["path"] for each in wanted)
        ]
        self.answer(200, {"files": answer})

    def batch(self, name: str) -> None:
        wanted = json.loads(self.body())["objects"]
        if self.writable(name) is None:
            return
        objects = []
        for each in wanted:
            entry = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.server.stored:
                href = f"{self.server.endpoint}/large/{each['oid']}"
                entry["actions"] = {"upload": {"href": href}}
            objects.append(entry)
        self.answer(200, {"transfer": "basic", "objects": objects})

    def store(self, digest: str) -> None:
        content = self.body()
        assert large_digest(content) == digest
        with self.server.storing:
            if self.server.full_at == len(self.server.stored):
                self.error(400, "the store is full")
                return
            self.server.stored[digest] = content
        self.answer(200)

    def commit(self, name: str, branch: str) -> None:
        lines = [json.loads(line) for line in self.body().splitlines()]
        if (model := self.writable(name)) is None:
            return
        if (files := self.files_at(model, branch)) is None:
            return
        header = lines[0]["value"]
        if header.get("parentCommit") not in (None, model.branches[branch]):
            self.error(412, "A commit has happened since. Please refresh and try again.")
            return

        files = dict(files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.stored[value["oid"]]
            else:
                del files[value["path"]]
        commit = model.put(branch, files)
        url = f"{self.server.endpoint}/{name}/commit/{commit}"
        self.answer(200, {"success": True, "commitOid": commit, "commitUrl": url})

    def info(self, name: str, revision: str | None) -> None:
        if (model := self.readable(name)) is None:
            return
        if (files := self.files_at(model, revision or MAIN)) is None:
            return
        commit = model.branches.get(revision or MAIN, revision)
        siblings = [{"rfilename": file} for file in files]
        info = {"id": name, "modelId": name, "sha": commit, "private": model.private, "tags": []}
        self.answer(200, {**info, "siblings": siblings})

    def tree(self, name: str, revision: str) -> None:
        if (model := self.readable(name)) is None:
            return
        if (files := self.files_at(model, revision)) is None:
            return
        entries = []
        for path, body in files.items():
            entry = {"type": "file", "path": path, "size": len(body), "oid": git_digest(body)}
            if is_large(path):
                entry["lfs"] = {"oid": large_digest(body), "size": len(body), "pointerSize": 134}
            entries.append(entry)
        self.answer(200, entries)

    def file(self, name: str, revision: str, file: str) -> None:
        if (model := self.readable(name)) is None:
            return
        if (files := self.files_at(model, revision)) is None:
            return
        if file not in files:
            self.error(404, "Entry not found", "EntryNotFound")
            return

        body = self.server.sent.get(file, files[file])
        digest = large_digest if is_large(file) else git_digest
        headers: dict[str, object] = {
            "ETag": f'"{digest(files[file])}"',
            "X_Repo_Commit": model.branches.get(revision, revision),
            "Accept_Ranges": "bytes",
        }
        if is_large(file):
            headers |= {"X_Linked_Etag": headers["ETag"], "X_Linked_Size": len(body)}
        asked = self.headers.get("Range")
        start = int(asked.split("=")[1].split("-")[0]) if asked else 0

        if self.command == "GET" and is_large(file):
            self.server.ranges.append(start)
            if self.server.cut_after is not None:
                self.cut(body, headers)
                return
        if start:
            headers["Content_Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self.answer(206 if start else 200, body[start:], **headers)

    def cut(self, body: bytes, headers: dict[str, object]) -> None:
        count, self.server.cut_after = self.server.cut_after, None
        self.send_response(200)
        for name, value in {**headers, "Content_Length": len(body)}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body[:count])
        self.close_connection = True
        if self.server.held is not None:
            self.server.held.set()
            self.rfile.read(1)  # until the other side ends
