"""The large recipe at toy size: two corpora, an S3 server on loopback, a mixture that is trained from it."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import yaml

from tests.examples.miniatures import lines, noise
from tests.examples.test_corpora import call, recipe
from wenet_uio.text.table import read_table

__all__ = ["recipe"]

TINY = (
    "max_epoch=1 encoder_conf.num_blocks=1 encoder_conf.output_size=32 encoder_conf.linear_units=32 "
    "encoder_conf.attention_heads=4 decoder_conf.attention_heads=4 decoder_conf.num_blocks=1 "
    "decoder_conf.linear_units=32"
)


def make_sources(root) -> str:
    """A yaml of two sources, 12 and 6 utterances to train on; they have keys in common."""
    sources = []
    for name, count, weight in (("one", 12, 0.25), ("two", 6, 0.75)):
        for part, size in (("train", count), ("dev", 2), ("test", 2)):
            folder = root / name / part
            keys = [f"utt{number}" for number in range(size)]
            for key in keys:
                noise(folder / f"{key}.wav")
            lines(folder / "wav.scp", *(f"{key} {folder}/{key}.wav" for key in keys))
            lines(folder / "text", *(f"{key} {name}" for key in keys))
        sources.append({"name": name, "data": str(root / name), "weight": weight})
    (root / "sources.yaml").write_text(yaml.safe_dump(sources))
    return str(root / "sources.yaml")


def test_a_mixture_is_packed_uploaded_trained_on_and_scored(recipe, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    folder, sources = recipe("large"), make_sources(tmp_path / "corpora")
    options = ("--sources", sources, "--storage", "s3://corpora/toy", "--num_utts_per_shard", "4", "--nj", "1")
    run = ("bash", folder / "run.sh", *options, "--override", TINY, "--average_num", "1", "--decode_modes", "attention")
    done = call(*run, "--stop_stage", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    mixture = yaml.safe_load((folder / "data" / "mixture.yaml").read_text())["sources"]
    assert [(source["type"], source["weight"]) for source in mixture] == [("shard", 0.25), ("shard", 0.75)]
    listed = [(folder / source["data_list"]).read_text().split() for source in mixture]
    assert listed == [
        [f"s3://corpora/toy/one/shards_00000000{number}.tar" for number in range(3)],
        [f"s3://corpora/toy/two/shards_00000000{number}.tar" for number in range(2)],
    ]
    assert all(bucket.exists(uri) and bucket.exists(f"{uri}.idx") for uris in listed for uri in uris)
    assert len(read_table(folder / "data" / "train" / "text")) == 18
    assert set(read_table(folder / "data" / "test" / "text")) == {"one-utt0", "one-utt1", "two-utt0", "two-utt1"}
    assert "18 read, 0 filtered, 0 bad" in done.stdout + done.stderr
    assert re.search(r"^attention +[\d.]+ +4 ", done.stdout, re.MULTILINE)

    again = call(*run, "--stage", "3", "--stop_stage", "3", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "3 shards in s3://corpora/toy/one, 0 of them copied" in again.stdout


def test_a_ray_cluster_packs_and_two_machines_train(recipe, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    folder, sources = recipe("large"), make_sources(tmp_path / "corpora")
    run = ("bash", folder / "run.sh", "--sources", sources, "--storage", "s3://corpora/toy", "--override", TINY)
    pack = call(*run, "--num_utts_per_shard", "4", "--executor", "ray", "--nj", "2", "--stop_stage", "3", cwd=tmp_path)
    assert pack.returncode == 0, pack.stderr
    assert len(bucket.glob("corpora/toy/**/*.tar")) == 5

    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting = f"127.0.0.1:{server.getsockname()[1]}"
    train = (*run, "--stage", "4", "--stop_stage", "4", "--num_nodes", "2", "--rdzv_endpoint", meeting, "--node_rank")
    with ThreadPoolExecutor(2) as machines:
        first, second = machines.map(lambda rank: call(*train, rank, cwd=tmp_path), ("0", "1"))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    # Which machine has rank 0, and logs, is the rendezvous's choice.
    assert "18 read, 0 filtered, 0 bad" in "".join((first.stdout, first.stderr, second.stdout, second.stderr))
    assert list(folder.glob("exp/train_conformer/epoch_0*"))


def test_sources_that_cannot_be_used_are_one_line(recipe, tmp_path):
    folder = recipe("large")
    for text, message in (
        ("- {name: a, data: nowhere, weight: 1}", "nowhere/train/wav.scp is missing: run stage 0 of the recipe of a"),
        ("- {name: a, data: x, wieght: 1}", "did you mean 'weight'?"),
        ("- {name: a, data: x, weight: 1}\n- {name: a, data: y, weight: 1}", "names of their own, found a, a"),
    ):
        (tmp_path / "s.yaml").write_text(text)
        done = call("bash", folder / "run.sh", "--sources", tmp_path / "s.yaml", "--stop_stage", "0", cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
