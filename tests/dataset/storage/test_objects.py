import gzip
import re
import sys
import tarfile

import fsspec
import pytest

from tests.support.data.hostile_tars import END, PACKED, sample
from tests.support.storage.servers import serving, serving_ftp
from wenet_uio.base.uris import shown
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.dataset.formats.data_list import read_shard_list
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import DriverError, StorageError
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "2")
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "one two;touch x.txt").write_bytes(b"content")
    return folder


def test_local_files_are_read_in_place(folder):
    path = str(folder / "one two;touch x.txt")
    for uri in (path, f"file://{path}", f"file://{path.replace(' ', '%20')}"):
        assert not objects.is_remote(uri)
        assert objects.HeldPaths().path_of(uri) == path
        assert objects.read_bytes(uri) == b"content"
        assert objects.exists(uri)
    assert not objects.exists(f"{path}.none")
    assert not objects.exists("x" * 300)  # longer than a file name may be


def test_remote_objects_are_read_from_their_copies(folder):
    with serving(folder) as http, serving_ftp(folder) as ftp:
        for uri in (
            f"{http.url}/one%20two;touch%20x.txt?signature=a&b=c",
            f"{ftp}/one two;touch x.txt",
        ):
            assert objects.is_remote(uri)
            assert objects.exists(uri)
            assert not objects.exists(uri.replace("one", "none"))
            assert (
                objects.read_bytes(uri)
                == open(objects.HeldPaths().path_of(uri), "rb").read()
                == b"content"
            )
            with pytest.raises(OSError, match="none"):
                objects.read_bytes(uri.replace("one", "none"))


def test_no_part_of_a_list_is_run_by_a_shell(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.list").write_text(f"{folder}/a.tar;touch x\n")
    with pytest.raises(ValueError, match="1 shard"):
        open_list("bad.list", "shard")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("uri", "command"),
    [("oss://bucket/*.tar", "pip install ossfs"), ("gs://bucket/*.tar", "pip install gcsfs")],
)
def test_a_missing_driver_is_reported_with_the_command_to_install_it(uri, command, monkeypatch):
    def without_driver(*args, **options):
        raise ImportError("no such module")

    monkeypatch.setattr(fsspec.core, "url_to_fs", without_driver)
    with pytest.raises(DriverError, match=command):
        objects.matches(uri)


def test_reading_from_oss_without_its_driver_is_reported_with_the_command_to_install_it(
    monkeypatch,
):
    monkeypatch.setenv("OSS_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "oss2", None)
    with pytest.raises(DriverError, match="pip install ossfs"):
        objects.read_bytes("oss://never-opened/a.tar")


def test_the_shown_form_of_a_uri_is_refused_where_the_uri_is_needed():
    for uri in ("http://me:secret@host/a.tar", "http://host/a.tar?signature=secret"):
        with pytest.raises(DriverError, match="was hidden when it was written"):
            objects.read_bytes(shown(uri))


def test_an_unknown_scheme_is_refused():
    with pytest.raises(DriverError, match="gopher"):
        objects.read_bytes("gopher://host/a.tar")


def test_aistore_without_an_endpoint_is_refused(monkeypatch):
    monkeypatch.delenv("AIS_ENDPOINT", raising=False)
    with pytest.raises(DriverError, match="set AIS_ENDPOINT"):
        objects.read_bytes("ais://bucket/a.tar")


def test_a_packed_tar_that_is_cut_short_gives_the_part_before_the_cut(make_lists, tmp_path):
    tar = open(make_lists(20, per_shard=20)["shard"]).read().strip()
    packed = gzip.compress(open(tar, "rb").read())
    (tmp_path / "whole.tar.gz").write_bytes(packed)
    (tmp_path / "broken.tar.gz").write_bytes(packed[: len(packed) // 2])
    assert objects.read_bytes(tmp_path / "whole.tar.gz") == open(tar, "rb").read()
    part = objects.read_bytes(tmp_path / "broken.tar.gz")
    assert 0 < len(part) < len(open(tar, "rb").read())
    assert open(tar, "rb").read().startswith(part)


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_gzip_with_another_checksum_is_refused(tmp_path):
    content = bytes(range(256)) * 40
    packed = gzip.compress(content, mtime=0)
    # The first 10 bytes are the header: its time and system mean nothing.
    damages = {f"bit {bit}": flipped(packed, bit) for bit in range(80, 8 * len(packed), 7)}
    damages |= {f"without {n} bytes": packed[:-n] for n in range(1, 9)}
    refused = 0
    for damage, data in damages.items():
        (tmp_path / f"{damage}.tar.gz").write_bytes(data)
        try:
            # A bit may be one that means nothing: padding before the checksum.
            assert objects.read_bytes(tmp_path / f"{damage}.tar.gz") == content, damage
        except OSError as error:
            assert "the gzip is damaged or has lost its end" in str(error), damage
            refused += 1

    assert refused >= len(damages) - 1

    (tmp_path / "joined.tar.gz").write_bytes(packed + packed + bytes(512))
    assert objects.read_bytes(tmp_path / "joined.tar.gz") == content * 2


@pytest.mark.parametrize("name", sorted({*PACKED} - {"gzip"}))
@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz"])
def test_what_is_named_as_a_gzip_and_is_none_is_named(tmp_path, name, suffix):
    content, says = PACKED[name]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    for read in (objects.read_bytes, objects.open_whole):
        with pytest.raises(StorageError, match=f"{path}: no gzip, .*{re.escape(says)}"):
            read(path)


def test_a_tar_that_is_named_as_a_gzip_is_to_be_named_as_a_tar(tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(sample("first") + END)
    with pytest.raises(StorageError, match=f"{path}: no gzip, .* but a tar; name it .tar"):
        objects.read_bytes(path)


def test_an_error_of_a_gzip_names_its_path(tmp_path):
    path = tmp_path / "a.tar.gz"
    for content in (gzip.compress(bytes(9000))[:-8] + bytes(8), b"", b"<html>404</html>"):
        path.write_bytes(content)
        with pytest.raises(StorageError, match=f"^{path}: "):
            objects.read_bytes(path)


def test_remote_globs_expand_where_stores_can_list(folder, tmp_path):
    for name in ("b.tar", "a.tar"):
        with tarfile.open(folder / name, "w"):
            pass
    with serving_ftp(folder) as ftp:
        (tmp_path / "shards.list").write_text(f"{ftp}/*.tar\nhttp://host/c.tar?x=[1]\n")
        assert read_shard_list(tmp_path / "shards.list") == [
            f"{ftp}/a.tar",
            f"{ftp}/b.tar",
            "http://host/c.tar?x=[1]",
        ]
    (tmp_path / "shards.list").write_text("http://host/*.tar\n")
    with pytest.raises(DriverError, match="http cannot list"):
        read_shard_list(tmp_path / "shards.list")


def test_a_cache_that_cannot_be_written_is_reported_when_a_remote_list_is_opened(
    folder, tmp_path, monkeypatch, make_lists
):
    make_lists(3)
    (tmp_path / "file").touch()
    with serving(tmp_path) as server:
        (tmp_path / "remote.list").write_text(f"{server.url}/shards/shards_000000000.tar\n")
        open_list(str(tmp_path / "remote.list"), "shard")
        monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "file"))
        with pytest.raises(OSError, match="set WENET_UIO_CACHE"):
            open_list(str(tmp_path / "remote.list"), "shard")


def test_tokens_of_remote_shards_are_counted_from_whole_shards(folder, tmp_path, make_lists):
    tokenizer = Tokenizer(
        CharSplitter(), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "a": 3, "b": 4, "c": 5}
    )
    local = open_list(make_lists(20)["shard"], "shard")
    with serving(tmp_path) as server:
        (tmp_path / "remote.list").write_text(
            f"{server.url}/shards/shards_{{000000000..000000001}}.tar\n"
        )
        corpus = TokenCounted(open_list(str(tmp_path / "remote.list"), "shard"), tokenizer)
        assert [server.requests[f"/shards/shards_00000000{number}.tar"] for number in range(2)] == [
            1,
            1,
        ]
    for shard in range(2):
        assert corpus.rows(shard).text_length.tolist() == local.rows(shard).text_length.tolist()
