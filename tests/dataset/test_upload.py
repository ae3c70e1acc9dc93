import os
import re
import time

import pytest

from wenet_uio.dataset.data_list import ListError
from wenet_uio.dataset.upload import put_shards, try_store
from wenet_uio.dataset.versions import DriverError, StorageError
from wenet_uio.executor import Executor


def test_shards_are_copied_with_their_indexes_and_a_second_time_only_what_is_newer(bucket, tmp_path, make_lists):
    shards = make_lists(30, per_shard=10)["shard"]
    remote = tmp_path / "remote.list"
    executor = Executor(2, "threads")
    assert put_shards(shards, "s3://corpora/toy/", str(remote), executor) == (3, 3)
    uris = remote.read_text().splitlines()
    assert uris[0] == "s3://corpora/toy/shards_000000000.tar"
    names = [name.rsplit("/", 1)[1] for name in bucket.ls("corpora/toy", refresh=True)]
    assert names == [f"shards_00000000{number}.tar{end}" for number in range(3) for end in ("", ".idx")]
    local = tmp_path / "shards" / "shards_000000001.tar"
    assert bucket.cat(uris[1]) == local.read_bytes()

    assert put_shards(shards, "s3://corpora/toy", str(remote), executor) == (3, 0)
    os.utime(local, (time.time() + 60, time.time() + 60))
    assert put_shards(shards, "s3://corpora/toy", str(remote), executor) == (3, 1)


@pytest.mark.parametrize("target", ["/mnt/store", "S3:/bucket", "s3://", ""])
def test_a_target_that_is_no_folder_of_a_store_is_refused(tmp_path, make_lists, target):
    with pytest.raises(ListError, match=re.escape(f"{target!r}: not a folder of a store")):
        put_shards(make_lists(3)["shard"], target, str(tmp_path / "remote.list"), Executor())


def test_a_store_without_driver_is_named():
    with pytest.raises(DriverError, match="nonsense://x"):
        try_store("nonsense://x")


def test_a_trial_leaves_nothing_behind(bucket):
    try_store("s3://corpora/toy/")
    assert bucket.find("corpora") == []


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
def test_a_store_that_takes_nothing_is_one_line_that_says_what_it_goes_by(
    bucket, tmp_path, make_lists, monkeypatch, target, environment, message
):
    shards, home = make_lists(3)["shard"], {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {**home, **environment}.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    type(bucket).clear_instance_cache()
    remote = tmp_path / "remote.list"
    with pytest.raises(StorageError) as caught:
        put_shards(shards, target, str(remote), Executor())
    assert re.fullmatch(message, str(caught.value))
    assert not remote.exists()
