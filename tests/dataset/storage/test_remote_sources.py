"""The same data from every kind of store: one plan, the same features."""

from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from tests.support.storage.remote_corpus import (
    assert_same_batches,
    batches_of,
    batches_of_local,
    write_list,
)
from tests.support.storage.servers import serving, serving_ftp, serving_s3
from tests.support.storage.webhdfs_server import serving_webhdfs
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine


def test_local_and_every_remote_store_give_one_plan_and_the_same_features(
    tmp_path, local, store, utterances, monkeypatch
):
    expected = batches_of_local(local)
    assert sum(len(batch) for batch in expected) == len(utterances) == 48
    tars = sorted(path.name for path in store.glob("*.tar"))
    with ExitStack() as stack:
        http = stack.enter_context(serving(store)).url
        ftp = stack.enter_context(serving_ftp(store))
        s3 = stack.enter_context(serving_s3(store, monkeypatch))
        webhdfs = stack.enter_context(serving_webhdfs(store))
        monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:1")
        user = ftp.replace("://", "://speech:secret%20word@")
        places = {
            "files": [
                *(f"file://{store}/{name}" for name in tars[:2]),
                *(f"{store}/{name}.gz" for name in tars[2:]),
            ],
            "http": [
                f"{http}/{tars[0]}?signed=a%2Fb&expires=9",
                f"{http}/{tars[1]}.gz",
                f"{http}/shards_{{000000002..000000003}}.tar",
            ],
            "ftp": [f"{ftp}/shards_*[01].tar", *(f"{user}/{name}" for name in tars[2:])],
            "s3": [f"{s3}/shards_*.tar"],
            "webhdfs": [f"{webhdfs}/shards_*.tar"],
        }
        for place, lines in places.items():
            data_list = write_list(tmp_path / f"{place}.list", lines)
            assert open_list(data_list, "shard").digest == open_list(local, "shard").digest, place
            assert_same_batches(
                batches_of(data_list, workers=1 if place in ("http", "s3") else 0), expected
            )


def test_remote_raw_files_give_the_batches_of_local_ones(
    tmp_path, local, store, utterances, monkeypatch
):
    expected = batches_of_local(local)
    with serving(store) as http, serving_ftp(store) as ftp:
        urls = [
            f"{url}/{Path(line.wav).name}"
            for url, line in zip(cycle([http.url, ftp]), utterances, strict=False)
        ]
        lines = [
            RawLine(line.key, url, line.text).to_json()
            for line, url in zip(utterances, urls, strict=True)
        ]
        data_list = write_list(tmp_path / "raw.list", lines)
        assert_same_batches(batches_of(data_list, "raw", workers=1), expected)


def test_aistore_objects_come_from_its_gateway(tmp_path, local, store, monkeypatch):
    gateway = tmp_path / "gateway" / "v1" / "objects"
    gateway.mkdir(parents=True)
    (gateway / "speech").symlink_to(store)
    data_list = write_list(
        tmp_path / "ais.list", ["ais://speech/shards_{000000000..000000003}.tar"]
    )
    with serving(tmp_path / "gateway") as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        assert_same_batches(batches_of(data_list), batches_of_local(local))
