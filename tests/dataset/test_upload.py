import os
import time

import pytest

from wenet_uio.dataset.data_list import ListError
from wenet_uio.dataset.upload import put_shards
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


def test_a_store_without_driver_is_named(tmp_path, make_lists):
    with pytest.raises((ListError, ValueError), match="nonsense"):
        put_shards(make_lists(3)["shard"], "nonsense://x", str(tmp_path / "remote.list"), Executor())
