"""The index of a remote tar is made once, and again when another tar is there."""

from tests.support.data.tars import wav, write_tar
from tests.support.storage.servers import serving
from wenet_uio.dataset.corpus.remote_index import update_kept_index
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT


def test_a_remote_tar_is_read_for_its_index_once_and_again_when_it_has_changed(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    store, kept = tmp_path / "store", tmp_path / "kept"
    store.mkdir()

    def write(*keys):
        samples = [[(f"{key}.wav", wav(0.1)), (f"{key}.txt", "a")] for key in keys]
        write_tar(store / "x.tar", [member for sample in samples for member in sample])

    def keys():
        rows, bad = update_kept_index(files, DEFAULT_LAYOUT, kept)
        assert bad == []
        return [rows.key(number) for number in range(len(rows))]

    with serving(store) as server:
        files = ShardFiles(f"{server.url}/x.tar")
        write("one", "two")
        assert keys() == ["one", "two"]
        requests = server.requests.copy()
        assert keys() == ["one", "two"]
        assert server.requests == requests

        write("one", "three", "four")
        assert keys() == ["one", "three", "four"]
