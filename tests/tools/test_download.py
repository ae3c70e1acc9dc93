"""wenet_uio/prepare/download.py and tools/download.py, with a loopback server that fails on
request.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import subprocess
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.serve.running_server import running
from wenet_uio.prepare.download import download

BODY = bytes(range(256)) * 400
SHA256 = hashlib.sha256(BODY).hexdigest()
TOOL = Path(__file__).resolve().parents[2] / "tools" / "download.py"


class Server(ThreadingHTTPServer):
    """Serve `body`; the next connections end after `cuts` bytes, or answer with `statuses`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.ranges = True
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.requests: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/corpus.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.headers.get("Range"))
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return
        body, first = self.server.body, 0
        if self.server.ranges and self.headers.get("Range"):
            first = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if first >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        end = first + self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[first:end])

    def log_message(self, *_arguments) -> None:
        """Keep quiet."""


@pytest.fixture
def server():
    with running(Server()) as server:
        yield server


def test_a_complete_download_leaves_no_part_file(server, tmp_path):
    path = download(server.url, tmp_path / "new" / "x.tar.gz", size=len(BODY), sha256=SHA256)
    assert path.read_bytes() == BODY
    assert not path.with_name("x.tar.gz.part").exists()


def test_an_existing_file_is_not_requested(server, tmp_path):
    (tmp_path / "x").write_bytes(BODY)
    download(server.url, tmp_path / "x", sha256=SHA256)
    assert server.requests == []


def test_a_connection_cut_short_is_resumed(server, tmp_path):
    server.cuts = [1000, 50000]
    assert download(server.url, tmp_path / "x", pause=0.01).read_bytes() == BODY
    assert server.requests == [None, "bytes=1000-", "bytes=51000-"]


def test_a_later_run_resumes_a_partial_download(server, tmp_path):
    server.cuts = [700] + [0] * 10
    with pytest.raises(OSError, match="gave up after 3 attempts.*run again to resume"):
        download(server.url, tmp_path / "x", attempts=3, pause=0.01)
    assert (tmp_path / "x.part").read_bytes() == BODY[:700]
    server.cuts.clear()
    assert download(server.url, tmp_path / "x").read_bytes() == BODY
    assert server.requests[-1] == "bytes=700-"


def test_a_complete_part_file_is_used(server, tmp_path):
    (tmp_path / "x.part").write_bytes(BODY)
    assert download(server.url, tmp_path / "x", sha256=SHA256).read_bytes() == BODY


def test_a_part_longer_than_the_file_is_started_over(server, tmp_path):
    (tmp_path / "x.part").write_bytes(BODY + b"more")
    assert download(server.url, tmp_path / "x", pause=0.01).read_bytes() == BODY


def test_a_server_without_ranges_is_started_over(server, tmp_path):
    server.ranges, server.cuts = False, [1000]
    assert download(server.url, tmp_path / "x", pause=0.01).read_bytes() == BODY


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.statuses = [503, 429]
    assert download(server.url, tmp_path / "x", pause=0.01).read_bytes() == BODY


def test_a_missing_file_is_an_error_at_once(server, tmp_path):
    server.statuses = [404, 404]
    with pytest.raises(OSError, match="corpus.tar.gz: the server answers 404"):
        download(server.url, tmp_path / "x")
    assert len(server.requests) == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("expected", [{"size": 5}, {"sha256": "0" * 64}])
def test_a_file_of_another_size_or_digest_is_removed(server, tmp_path, expected):
    with pytest.raises(ValueError, match="corpus.tar.gz: expected"):
        download(server.url, tmp_path / "x", **expected)
    assert [path.name for path in tmp_path.iterdir()] == ["x.lock"]


def test_of_two_processes_one_downloads(server, tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=download, args=(server.url, tmp_path / "x")) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert len(server.requests) == 1
    assert (tmp_path / "x").read_bytes() == BODY


def archive_of(names: list[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


def run_tool(*arguments: str | Path) -> subprocess.CompletedProcess:
    return preloaded.run([TOOL, *arguments])


def test_the_top_folder_of_an_archive_becomes_the_corpus_and_a_second_run_does_nothing(
    server, tmp_path
):
    server.body = archive_of(
        ["corpus-1.0/recordings/a.wav", "corpus-1.0/recordings/b.wav", "corpus-1.0/README"]
    )
    arguments = (
        "--unpack",
        "--count",
        "recordings/*.wav=2",
        server.url,
        tmp_path / "data" / "corpus",
    )
    result = run_tool(*arguments)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "data" / "corpus").iterdir()) == [
        "README",
        "recordings",
    ]
    assert not list((tmp_path / "data").glob("*.tar.gz"))
    assert run_tool(*arguments).stdout == f"{tmp_path}/data/corpus is there already\n"
    assert len(server.requests) == 1


def test_an_incomplete_archive_leaves_no_corpus(server, tmp_path):
    server.body = archive_of(["corpus-1.0/recordings/a.wav"])
    result = run_tool("--unpack", "--count", "recordings/*.wav=2", server.url, tmp_path / "corpus")
    assert result.returncode == 1
    assert "expected 2 files recordings/*.wav, found 1" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "corpus").exists()
