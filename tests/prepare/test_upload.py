import os
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.serve.running_server import running
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage.versions import DriverError, StorageError
from wenet_uio.prepare import upload
from wenet_uio.prepare.upload import put_shards, try_store


def test_shards_are_copied_with_their_indexes_and_a_second_time_only_what_differs(
    bucket, tmp_path, make_lists
):
    shards = make_lists(30, per_shard=10)["shard"]
    remote = tmp_path / "remote.list"
    executor = Executor(2, "threads")
    assert put_shards(shards, "s3://corpora/toy/", str(remote), executor) == (3, 3)
    uris = remote.read_text().splitlines()
    assert uris[0] == "s3://corpora/toy/shards_000000000.tar"
    names = [name.rsplit("/", 1)[1] for name in bucket.ls("corpora/toy", refresh=True)]
    assert names == [
        f"shards_00000000{number}.tar{end}" for number in range(3) for end in ("", ".idx")
    ]
    local = tmp_path / "shards" / "shards_000000001.tar"
    assert bucket.cat(uris[1]) == local.read_bytes()

    assert put_shards(shards, "s3://corpora/toy", str(remote), executor) == (3, 0)
    os.utime(local, (time.time() + 60, time.time() + 60))
    assert put_shards(shards, "s3://corpora/toy", str(remote), executor) == (3, 0)


@pytest.mark.third
@pytest.mark.parametrize("tells_md5", [True, False])
@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_a_shard_of_equal_size_and_other_contents_is_copied_whatever_the_clocks_say(
    bucket, tmp_path, make_lists, monkeypatch, tells_md5, seconds
):
    if not tells_md5:  # as of objects that were uploaded in several parts
        monkeypatch.setattr(upload, "_stored_md5", lambda info: "")
    shards, remote = make_lists(30, per_shard=10)["shard"], str(tmp_path / "remote.list")
    executor = Executor(2, "threads")
    assert put_shards(shards, "s3://corpora/toy", remote, executor) == (3, 3)
    assert put_shards(shards, "s3://corpora/toy", remote, executor) == (3, 0)

    local = tmp_path / "shards" / "shards_000000001.tar"
    data = bytearray(local.read_bytes())
    data[1000] ^= 1
    local.write_bytes(data)
    os.utime(local, (time.time() + seconds, time.time() + seconds))
    assert put_shards(shards, "s3://corpora/toy", remote, executor) == (3, 1)
    assert bucket.cat("s3://corpora/toy/shards_000000001.tar") == bytes(data)


@pytest.mark.third
@pytest.mark.parametrize("tells_md5", [True, False])
def test_an_object_that_was_overwritten_in_the_store_is_copied_again(
    bucket, tmp_path, make_lists, monkeypatch, tells_md5
):
    if not tells_md5:
        monkeypatch.setattr(upload, "_stored_md5", lambda info: "")
    shards, remote = make_lists(30, per_shard=10)["shard"], str(tmp_path / "remote.list")
    put_shards(shards, "s3://corpora/toy", remote, Executor(2, "threads"))
    name = "s3://corpora/toy/shards_000000002.tar"
    whole = bucket.cat(name)
    bucket.pipe_file(name, bytes(len(whole)))
    assert put_shards(shards, "s3://corpora/toy", remote, Executor(2, "threads")) == (3, 1)
    assert bucket.cat(name) == whole


@pytest.mark.third
@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', "\x00"])
def test_a_damaged_record_costs_a_comparison_only(bucket, tmp_path, make_lists, content):
    shards, remote = make_lists(3)["shard"], str(tmp_path / "remote.list")
    put_shards(shards, "s3://corpora/toy", remote, Executor(1, "threads"))
    (tmp_path / "remote.list.uploaded.json").write_text(content)
    assert put_shards(shards, "s3://corpora/toy", remote, Executor(1, "threads")) == (1, 0)


@pytest.mark.parametrize("target", ["/mnt/store", "S3:/bucket", "s3://", ""])
def test_a_target_that_is_not_a_folder_of_a_store_is_refused(tmp_path, make_lists, target):
    with pytest.raises(ListError, match=re.escape(f"{target!r}: expected a folder in a store")):
        put_shards(make_lists(3)["shard"], target, str(tmp_path / "remote.list"), Executor())


def test_a_store_without_driver_is_named():
    with pytest.raises(DriverError, match="nonsense://x"):
        try_store("nonsense://x")


def test_a_trial_leaves_nothing_behind(bucket):
    try_store("s3://corpora/toy/")
    assert bucket.find("corpora") == []


@pytest.mark.third
@pytest.mark.parametrize(
    ("target", "environment", "message"),
    [
        (
            "s3://elsewhere/toy",
            {},
            r"s3://elsewhere/toy: cannot be written: The specified bucket does not exist; "
            r"in the environment: AWS_ENDPOINT_URL=http://127\.0\.0\.1:\d+, "
            r"AWS_ACCESS_KEY_ID set, AWS_SECRET_ACCESS_KEY set",
        ),
        (
            "s3://corpora/toy",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            r"s3://corpora/toy: cannot be written: Could not connect to the endpoint URL: .*"
            r"; in the environment: AWS_ENDPOINT_URL=http://127\.0\.0\.1:9, .*",
        ),
        (
            "s3://corpora/toy",
            {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
            r"s3://corpora/toy: cannot be written: Unable to locate credentials; "
            r"in the environment: .*, AWS_ACCESS_KEY_ID not set, AWS_SECRET_ACCESS_KEY not set",
        ),
    ],
)
def test_a_store_that_refuses_is_one_line_with_its_environment(
    bucket, tmp_path, monkeypatch, target, environment, message
):
    home = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {**home, **environment}.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    type(bucket).clear_instance_cache()
    with pytest.raises(StorageError) as caught:
        try_store(target)
    assert re.fullmatch(message, str(caught.value))


class Busy(BaseHTTPRequestHandler):
    """An empty store that is too busy for the first two uploads."""

    protocol_version = "HTTP/1.1"
    puts: list[str]

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.puts.append(self.path)
        self.answer(503 if len(self.puts) <= 2 else 200)

    def do_HEAD(self):
        self.answer(200 if self.path in self.puts[2:] else 404)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("ETag", '"x"')
        self.end_headers()

    def do_GET(self):
        listing = (
            b'<?xml version="1.0"?><ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>'
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(listing)))
        self.end_headers()
        self.wfile.write(listing)

    def log_message(self, *_arguments):
        """Keep quiet."""


def test_a_busy_store_is_asked_again(bucket, tmp_path, make_lists, monkeypatch):
    shards = make_lists(3)["shard"]
    handler = type("Handler", (Busy,), {"puts": []})
    with running(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        type(bucket).clear_instance_cache()
        assert put_shards(
            shards, "s3://corpora/toy", str(tmp_path / "remote.list"), Executor()
        ) == (1, 1)
    index, shard = "/corpora/toy/shards_000000000.tar.idx", "/corpora/toy/shards_000000000.tar"
    assert [path.partition("?")[0] for path in handler.puts] == [index, index, index, shard]
