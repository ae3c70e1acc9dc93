"""The same data from every kind of store: one plan, the same features."""

from contextlib import ExitStack
from pathlib import Path

from tests.dataset.storage.support.remote_corpus import assert_same_batches, batches_of, write_list
from tests.dataset.storage.support.servers import serving, serving_ftp, serving_s3
from tests.dataset.storage.support.webhdfs_server import serving_webhdfs
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine


def test_local_and_every_remote_store_give_one_plan_and_the_same_features(
    tmp_path, local, store, utterances, monkeypatch
):
    expected = batches_of(local)
    assert sum(len(batch) for batch in expected) == len(utterances) == 100
    tars = sorted(path.name for path in store.glob("*.tar"))
    with ExitStack() as stack:
        http = stack.enter_context(serving(store)).url
        ftp = stack.enter_context(serving_ftp(store))
        s3 = stack.enter_context(serving_s3(store, monkeypatch))
        webhdfs = stack.enter_context(serving_webhdfs(store))
        monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:1")
        places = {
            "file": [f"file://{store}/{name}" for name in tars],
            "gz": [f"{store}/{name}.gz" for name in tars],
            "http": [f"{http}/{name}?signed=a%2Fb&expires=9" for name in tars],
            "http range": [f"{http}/shards_{{000000000..000000003}}.tar"],
            "http gz": [f"{http}/{name}.gz" for name in tars],
            "ftp": [f"{ftp}/shards_*.tar"],
            "ftp user": [f"{ftp.replace('://', '://speech:secret%20word@')}/{name}" for name in tars],
            "s3": [f"{s3}/shards_*.tar"],
            "webhdfs": [f"{webhdfs}/shards_*.tar"],
        }
        for place, lines in places.items():
            data_list = write_list(tmp_path / f"{place.replace(' ', '_')}.list", lines)
            assert open_list(data_list, "shard").digest == open_list(local, "shard").digest, place
            assert_same_batches(batches_of(data_list, workers=1 if place in ("http", "s3") else 0), expected)


def test_remote_raw_files_give_the_batches_of_local_ones(tmp_path, local, store, utterances, monkeypatch):
    expected = batches_of(local)
    with serving(store) as http, serving_ftp(store) as ftp:
        for place, url in (("http", http.url), ("ftp", ftp)):
            lines = [RawLine(u.key, f"{url}/{Path(u.wav).name}", u.text).to_json() for u in utterances]
            data_list = write_list(tmp_path / f"raw_{place}.list", lines)
            assert_same_batches(batches_of(data_list, "raw", workers=1), expected)


def test_aistore_objects_come_from_its_gateway(tmp_path, local, store, monkeypatch):
    gateway = tmp_path / "gateway" / "v1" / "objects"
    gateway.mkdir(parents=True)
    (gateway / "speech").symlink_to(store)
    data_list = write_list(tmp_path / "ais.list", ["ais://speech/shards_{000000000..000000003}.tar"])
    with serving(tmp_path / "gateway") as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        assert_same_batches(batches_of(data_list), batches_of(local))
