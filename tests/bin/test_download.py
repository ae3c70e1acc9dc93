"""wenet_uio/prepare/download.py and tools/download.py, with a loopback server that fails on
request.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import shutil
import subprocess
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
    """Serve `body`, or what `bodies` has for the path; the next answers end after `cuts` bytes, or have
    `statuses`.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.bodies: dict[str, bytes] = {}
        self.tag = '"1"'
        self.ranges = self.tells_length = True
        self.is_chunked = False
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.requests: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/corpus.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    @property
    def body(self) -> bytes:
        """What the path of the request has."""
        return self.server.bodies.get(self.path, self.server.body)

    def do_HEAD(self) -> None:
        self.head(0)

    def head(self, first: int) -> None:
        """Send the head of an answer with the body from byte `first` on."""
        body = self.body
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        if self.server.tag:
            self.send_header("ETag", self.server.tag)
        if self.server.is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif self.server.tells_length:
            self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()

    def do_GET(self) -> None:
        self.server.requests.append(self.headers.get("Range"))
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return

        first = 0
        if self.server.ranges and self.headers.get("Range"):
            first = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0])

        self.head(first)
        end = first + self.server.cuts.pop(0) if self.server.cuts else len(self.body)
        sent = self.body[first:end]
        if self.server.is_chunked:
            self.wfile.write(f"{len(sent):x}\r\n".encode() + sent + b"\r\n")
            self.wfile.write(b"0\r\n\r\n" if end >= len(self.body) else b"")
        else:
            self.wfile.write(sent)

    def log_message(self, *_arguments) -> None:
        """Keep quiet."""


@pytest.fixture
def server():
    with running(Server()) as server:
        yield server


def test_a_complete_download_leaves_no_part_file(server, tmp_path):
    path = download(server.url, tmp_path / "new" / "x.tar.gz", size=len(BODY), sha256=SHA256)
    assert path.read_bytes() == BODY
    assert sorted(file.name for file in path.parent.iterdir()) == ["x.tar.gz", "x.tar.gz.lock"]


def test_an_existing_file_is_not_requested(server, tmp_path):
    (tmp_path / "x").write_bytes(BODY)
    download(server.url, tmp_path / "x", sha256=SHA256)
    assert server.requests == []


def test_a_connection_cut_short_is_resumed(server, tmp_path):
    server.cuts = [1000, 50000]
    assert download(server.url, tmp_path / "x").read_bytes() == BODY
    assert [request and request.partition("-")[0] for request in server.requests] == [
        None,
        "bytes=1000",
        "bytes=51000",
    ]


@pytest.fixture
def partial(server, tmp_path, monkeypatch):
    """What an earlier run has received: 700 bytes."""
    server.cuts = [700] + [0] * 100
    monkeypatch.setenv("WENET_UIO_DEADLINE", "0.5")
    with pytest.raises(OSError, match=r"corpus.tar.gz: no data received for 0.5 s"):
        download(server.url, tmp_path / "x")
    assert (tmp_path / "x.part").read_bytes() == BODY[:700]
    server.cuts.clear()
    server.requests.clear()
    return tmp_path / "x"


def test_a_later_run_resumes_a_partial_download(server, partial):
    assert download(server.url, partial).read_bytes() == BODY
    assert [request.partition("-")[0] for request in server.requests] == ["bytes=700"]


@pytest.mark.parametrize("same_length", [True, False])
def test_a_file_that_changed_since_is_started_over(server, partial, same_length, capsys):
    server.body, server.tag = (BODY[::-1] if same_length else BODY * 2), '"2"'
    assert download(server.url, partial).read_bytes() == server.body
    assert server.requests == [None]
    assert "x.part is of another version; starting over" in capsys.readouterr().err


def test_a_file_that_changes_while_it_is_read_is_started_over(server, tmp_path, monkeypatch):
    server.cuts = [1000]
    head = Handler.head

    def changing(self, first):
        if first:  # the second connection
            self.server.body, self.server.tag = BODY[::-1], '"2"'
        head(self, first)

    monkeypatch.setattr(Handler, "head", changing)
    assert download(server.url, tmp_path / "x").read_bytes() == BODY[::-1]


def test_a_part_of_unknown_version_is_started_over(server, tmp_path):
    (tmp_path / "x.part").write_bytes(b"without a note of its version")
    assert download(server.url, tmp_path / "x").read_bytes() == BODY
    assert server.requests == [None]


def test_a_part_of_a_server_that_names_no_version_is_started_over(server, partial):
    server.tag = ""
    assert download(server.url, partial).read_bytes() == BODY
    assert server.requests == [None]


def test_a_part_longer_than_the_file_is_started_over(server, partial):
    Path(f"{partial}.part").write_bytes(BODY + b"more")
    assert download(server.url, partial).read_bytes() == BODY


def test_a_server_without_ranges_sends_what_is_missing_again(server, partial):
    server.ranges = False
    assert download(server.url, partial).read_bytes() == BODY


def test_a_part_of_another_place_is_not_taken(server, partial, monkeypatch):
    head = Handler.head
    monkeypatch.setattr(Handler, "head", lambda self, first: head(self, first and first + 5))
    with pytest.raises(OSError, match="Content-Range"):
        download(server.url, partial)
    assert not partial.exists()


@pytest.mark.parametrize("cut", [False, True])
def test_a_body_of_unknown_length_that_is_cut_is_asked_for_again(server, tmp_path, cut):
    server.is_chunked, server.ranges = True, False
    server.cuts = [1000] if cut else []
    assert download(server.url, tmp_path / "x", sha256=SHA256).read_bytes() == BODY


def test_a_body_whose_length_nobody_tells_is_said(server, tmp_path, caplog):
    server.tells_length = False
    server.cuts = [1000]
    download(server.url, tmp_path / "x")
    assert "whether" in caplog.text
    assert "is whole is not known; give a size or a sha256" in caplog.text
    server.cuts = [1000]
    with pytest.raises(ValueError, match=f"expected {len(BODY)} bytes, found 1000"):
        download(server.url, tmp_path / "y", size=len(BODY))


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.statuses = [503, 429]
    assert download(server.url, tmp_path / "x").read_bytes() == BODY


def test_a_missing_file_is_an_error_at_once(server, tmp_path):
    server.statuses = [404, 404]
    with pytest.raises(OSError, match="corpus.tar.gz: HTTP 404"):
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


def cut(server):
    """The next connection ends early, the second one too; both are resumed."""
    server.cuts = [100, 200]


def uncut(server):
    """The next connection brings the whole file."""


ARCHIVE = archive_of(["corpus-1.0/recordings/a.wav"])


@pytest.mark.parametrize("connection", [uncut, cut])
@pytest.mark.parametrize("unpack", [True, False])
def test_a_download_without_a_digest_must_be_the_same_as_the_first_one(
    server, tmp_path, connection, unpack
):
    server.body = ARCHIVE
    corpus, note = tmp_path / "corpus", tmp_path / "corpus.sha256"
    arguments = [*(["--unpack"] if unpack else []), server.url, corpus]

    def again(body):
        shutil.rmtree(corpus) if unpack else corpus.unlink()
        server.body, server.tag = body, f'"{len(body)}"'
        connection(server)
        return run_tool(*arguments)

    connection(server)
    assert run_tool(*arguments).returncode == 0
    name = "corpus.corpus.tar.gz" if unpack else "corpus"
    noted = f"{hashlib.sha256(ARCHIVE).hexdigest()}  {name}\n"
    assert note.read_text() == noted

    assert again(ARCHIVE).returncode == 0
    refused = again(archive_of(["corpus-1.0/recordings/b.wav"]))
    assert refused.returncode == 1
    assert f"the first download had sha256 {noted[:64]} ({note}), this one has" in refused.stderr
    assert not corpus.exists()
    assert not (tmp_path / "corpus.corpus.tar.gz").exists()
    assert note.read_text() == noted

    note.write_text("")
    refused = run_tool(*arguments)
    assert f"{note}: expected a line of sha256sum, found ''; remove the file" in refused.stderr


def test_the_archive_of_another_corpus_with_the_same_name_is_not_taken(server, tmp_path):
    """Branches of GitHub are all called master.tar.gz; a kill may leave one of them."""
    for left_over in ("corpus.tar.gz", "german.corpus.tar.gz"):
        (tmp_path / left_over).write_bytes(archive_of(["german/recordings/a.wav"]))
    (tmp_path / "german").mkdir()
    server.body = archive_of(["dutch/recordings/b.wav"])
    assert run_tool("--unpack", server.url, tmp_path / "dutch").returncode == 0
    assert [path.name for path in (tmp_path / "dutch").rglob("*.wav")] == ["b.wav"]
    noted = (tmp_path / "dutch.sha256").read_text()
    assert noted.startswith(hashlib.sha256(server.body).hexdigest())

    assert run_tool("--unpack", server.url, tmp_path / "german").returncode == 0
    assert not (tmp_path / "german.corpus.tar.gz").exists()
    assert not (tmp_path / "german.sha256").exists()


def test_archives_of_one_name_that_arrive_together_are_not_taken_for_each_other(
    server, tmp_path, monkeypatch
):
    names = ("german", "dutch")
    for name in names:
        server.bodies[f"/{name}/master.tar.gz"] = archive_of([f"{name}/{name}.wav"])
    both_asked, get = threading.Barrier(2), Handler.do_GET

    def get_when_both_have_asked(self):
        with suppress(threading.BrokenBarrierError):
            both_asked.wait(5)  # with one name, the second waits until the first has all
        get(self)

    monkeypatch.setattr(Handler, "do_GET", get_when_both_have_asked)
    base = server.url.rpartition("/")[0]
    with ThreadPoolExecutor() as pool:
        tools = [
            pool.submit(run_tool, "--unpack", f"{base}/{name}/master.tar.gz", tmp_path / name)
            for name in names
        ]
        for tool in tools:
            assert tool.result().returncode == 0, tool.result().stderr
    for name in names:
        assert [path.name for path in (tmp_path / name).iterdir()] == [f"{name}.wav"]


def test_what_came_in_place_of_an_archive_is_not_noted(server, tmp_path):
    server.body = b"<html>Log in to the network</html>"
    assert run_tool("--unpack", server.url, tmp_path / "corpus").returncode == 1
    assert not (tmp_path / "corpus.sha256").exists()


def test_a_digest_of_files_is_that_of_sha256sum_and_leaves_no_note(server, tmp_path):
    files = tmp_path / "corpus-1.0" / "recordings"
    files.mkdir(parents=True)
    for name, content in {"b.wav": b"1", "a.wav": b"2", "ä.wav": b"3"}.items():
        (files / name).write_bytes(content)
    (files.parent / "README").write_text("not among the files that match")
    printed = subprocess.run(
        "LC_ALL=C; sha256sum recordings/*.wav | sha256sum",
        shell=True,
        cwd=files.parent,
        capture_output=True,
        text=True,
    ).stdout
    digest = printed.split()[0].upper()

    for archive_format in ("gztar", "zip"):  # as a server that packs anew does
        name = shutil.make_archive(str(tmp_path / "made"), archive_format, tmp_path, "corpus-1.0")
        server.body = Path(name).read_bytes()
        corpus = tmp_path / archive_format
        arguments = ["--unpack", server.url, corpus, "--files_sha256", f"recordings/*.wav={digest}"]
        result = run_tool(*arguments)
        assert result.returncode == 0, result.stderr
        assert not Path(f"{corpus}.sha256").exists()

    (files / "a.wav").write_bytes(b"another recording")
    server.body = Path(shutil.make_archive(str(tmp_path / "made"), "gztar", tmp_path, "corpus-1.0"))
    server.body = server.body.read_bytes()
    shutil.rmtree(corpus)
    result = run_tool(*arguments)
    assert result.returncode == 1
    assert f"expected files recordings/*.wav with sha256 {digest.lower()}, found" in result.stderr
    assert not corpus.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sha256", "c3f49e"], "expected 64 hexadecimal digits, found 'c3f49e'"),
        (["--files_sha256", SHA256], f"expected PATTERN=SHA256, found '{SHA256}'"),
        (["--files_sha256", f"*.wav={SHA256}"], "check files of an archive: give --unpack"),
    ],
)
def test_a_digest_that_nothing_could_have_is_refused(options, message, tmp_path):
    result = run_tool("http://127.0.0.1:1/x", tmp_path / "x", *options)
    assert result.returncode == 2
    assert message in result.stderr


def test_an_incomplete_archive_leaves_no_corpus(server, tmp_path):
    server.body = archive_of(["corpus-1.0/recordings/a.wav"])
    result = run_tool("--unpack", "--count", "recordings/*.wav=2", server.url, tmp_path / "corpus")
    assert result.returncode == 1
    assert "expected 2 files recordings/*.wav, found 1" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "corpus").exists()
