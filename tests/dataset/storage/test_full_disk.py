"""A cache without room costs only speed: lists are indexed, and samples are read, without
copies.
"""

import gzip
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.data.loading import loader
from tests.support.storage.remote_corpus import (
    assert_nothing_is_left,
    assert_same_batches,
    batches_of,
    environment,
    write_list,
)
from tests.support.storage.servers import serving
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.storage import cache, objects

ON_A_FULL_DISK = """
import sys
from wenet_uio.dataset.corpus.open_list import open_list
for number in range(1, len(sys.argv), 2):
    corpus = open_list(sys.argv[number], sys.argv[number + 1])
    print(corpus.num_samples, len(corpus.bad), corpus.digest)
"""
MOUNT = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'


def lists_of_every_kind(folder: Path, server, utterances):
    """Lists that are indexed by reading whole objects: (path, type)."""
    tars = [f"shards_00000000{number}.tar" for number in range(4)]
    manifest = server.folder / "manifest.json"
    for number, _tar in enumerate(tars):
        lines = utterances[12 * number : 12 * number + 12]
        entries = [
            {
                "audio_filepath": f"{line.key}.wav",
                "text": line.text,
                "duration": 0.3,
                "shard_id": number,
            }
            for line in lines
        ]
        with open(manifest, "a" if number else "w") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
    (server.folder / "manifest.json.gz").write_bytes(gzip.compress(manifest.read_bytes()))
    raw = [
        RawLine(line.key, f"{server.url}/{Path(line.wav).name}", line.text)
        for line in utterances[:10]
    ]
    pieces = [
        RawLine(f"{line.key}-{start}", line.wav, line.text, start, start + 0.1)
        for line in raw
        for start in (0.0, 0.1)
    ]
    lists = {
        "shard": [f"{server.url}/{tar}" for tar in tars],
        "packed": [f"{server.url}/{tar}.gz" for tar in tars],
        "packed_here": [f"{server.folder}/{tar}.gz" for tar in tars],
        "nemo": [
            f"{server.url}/{tar}\t{server.url}/manifest.json.gz\t{number}"
            for number, tar in enumerate(tars)
        ],
        "raw": [line.to_json() for line in raw],
        "pieces": [line.to_json() for line in pieces],
    }
    folder.mkdir()
    return [
        (
            write_list(folder / f"{name}.list", lines),
            "raw" if name in ("raw", "pieces") else "shard",
        )
        for name, lines in lists.items()
    ]


@pytest.fixture
def server(store, tmp_path):
    """A server of the store's files that tests may add to."""
    with serving_copies(store, tmp_path / "served") as server:
        yield server


@contextmanager
def serving_copies(store, folder):
    folder.mkdir()
    for path in store.iterdir():
        (folder / path.name).symlink_to(path)
    with serving(folder) as server:
        yield server


def indexed(lists):
    return [open_list(*one) for one in lists]


@pytest.fixture(scope="module")
def expected(store, utterances, tmp_path_factory):
    """The corpora of the lists of every kind, indexed with room in the cache."""
    folder = tmp_path_factory.mktemp("with_room")
    with pytest.MonkeyPatch.context() as patch, serving_copies(store, folder / "served") as server:
        patch.setenv("WENET_UIO_CACHE", str(folder / "cache"))
        return indexed(lists_of_every_kind(folder / "lists", server, utterances))


def test_every_kind_of_list_is_indexed_without_room_in_the_cache(
    expected, server, utterances, tmp_path, cache_folder, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "small"))
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "100")
    found = indexed(lists_of_every_kind(tmp_path / "without", server, utterances))
    assert [corpus.digest for corpus in found] == [corpus.digest for corpus in expected]
    assert [corpus.num_samples for corpus in found] == [48, 48, 48, 48, 10, 20]
    assert [corpus.bad for corpus in found if corpus.data_list.endswith("raw.list")] == [[]]
    assert [len(corpus.bad) for corpus in found] == [len(corpus.bad) for corpus in expected]
    assert list((tmp_path / "small").rglob("*.tar")) == []
    assert_nothing_is_left(tmp_path / "small")


@pytest.mark.parametrize("disk", ["size=40k", "nr_inodes=2"])
def test_every_kind_of_list_is_indexed_while_the_disk_of_the_cache_is_full(
    disk, expected, server, utterances, tmp_path, cache_folder
):
    cache_folder.mkdir()
    namespace = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        MOUNT,
        "sh",
        disk,
        str(cache_folder),
    ]
    try:
        subprocess.run([*namespace, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    lists = lists_of_every_kind(tmp_path / "full", server, utterances)
    command = [
        *namespace,
        sys.executable,
        "-c",
        ON_A_FULL_DISK,
        *(word for one in lists for word in one),
    ]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{corpus.num_samples} {len(corpus.bad)} {corpus.digest}" for corpus in expected
    ]


@pytest.mark.third
@pytest.mark.parametrize("kind", ["shard", "raw", "pieces"])
def test_batches_are_the_same_without_room_in_the_cache(
    kind, server, utterances, tmp_path, cache_folder, monkeypatch
):
    lists = lists_of_every_kind(tmp_path / "lists", server, utterances)
    data_list, data_type = next(one for one in lists if one[0].endswith(f"/{kind}.list"))
    expected = batches_of(data_list, data_type)
    objects.shared_paths.cache_clear()
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "small"))
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "100")
    assert_same_batches(batches_of(data_list, data_type, workers=1), expected)
    assert list((tmp_path / "small").rglob("*.tar")) == []


def test_samples_of_compressed_shards_are_unreadable_without_room_in_the_cache(
    server, utterances, tmp_path, cache_folder, monkeypatch
):
    lists = lists_of_every_kind(tmp_path / "lists", server, utterances)
    data_list, _ = next(one for one in lists if one[0].endswith("/packed.list"))
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "100")
    batches = list(loader(data_list, "shard", training=False))
    assert {sample.reason for batch in batches for sample in batch.skipped} == {"unreadable"}
    assert all(
        "WENET_UIO_CACHE_BYTES" in sample.detail for batch in batches for sample in batch.skipped
    )
    assert sum(len(batch.skipped) for batch in batches) == 48


def test_contents_are_held_in_memory_where_the_cache_is_full(
    server, store, cache_folder, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "100")
    whole = (store / "shards_000000001.tar").read_bytes()
    for uri in (f"{server.url}/shards_000000001.tar", f"{server.url}/shards_000000001.tar.gz"):
        with objects.held_path(uri) as path:
            assert Path(path).read_bytes() == whole
        assert objects.read_bytes(uri) == whole
    with pytest.raises(cache.CacheFullError, match="WENET_UIO_CACHE_BYTES"):
        objects.open_whole(f"{server.url}/shards_000000001.tar")
    with pytest.raises(FileNotFoundError, match="HTTP 404"):
        objects.read_bytes(f"{server.url}/none")
