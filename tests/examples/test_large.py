"""The large recipe at toy size: two corpora, an S3 server on loopback, and training on the
mixture.
"""

from __future__ import annotations

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.examples.test_corpora import call, recipe
from tests.support.recipes.files import lines, noise
from wenet_uio.config import load_config
from wenet_uio.text.table import read_table
from wenet_uio.text.tokenizer import build_tokenizer

__all__ = ["recipe"]

TINY = (
    "max_epoch=1 observe_interval=0 report=false "
    "encoder_conf.num_blocks=1 encoder_conf.output_size=32 encoder_conf.linear_units=32 "
    "encoder_conf.attention_heads=4 decoder_conf.attention_heads=4 decoder_conf.num_blocks=1 "
    "decoder_conf.linear_units=32"
)


@pytest.fixture
def large(recipe, tmp_path, monkeypatch) -> Path:
    """Folder of a copy of the recipe."""
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    return recipe("large")


SOURCES = (("one", "one", 12, 0.25), ("two", "二号", 6, 0.75))


def make_sources(root, made=SOURCES) -> str:
    """Write a yaml of two sources with 12 and 6 training utterances and common keys; the second is
    Mandarin.
    """
    sources = []
    for name, said, count, weight in made:
        for part, size in (("train", count), ("dev", 2), ("test", 2)):
            folder = root / name / part
            keys = [f"utt{number}" for number in range(size)]
            for key in keys:
                noise(folder / f"{key}.wav")
            lines(folder / "wav.scp", *(f"{key} {folder}/{key}.wav" for key in keys))
            lines(folder / "text", *(f"{key} {said}" for key in keys))
        sources.append({"name": name, "data": name, "weight": weight})
    (root / "sources.yaml").write_text(yaml.safe_dump(sources))
    return str(root / "sources.yaml")


@pytest.mark.all
def test_a_mixture_is_packed_uploaded_trained_on_and_scored(large, bucket, tmp_path):
    make_sources(tmp_path / "corpora")
    options = (
        "--sources",
        "corpora/sources.yaml",
        "--storage",
        "s3://corpora/toy/",
        "--num_utts_per_shard",
        "4",
    )
    run = ("bash", large / "run.sh", *options, "--nj", "1", "--char", "1", "--override", TINY)
    scored = ("--average_num", "1", "--decode_modes", "attention")
    done = call(*run, *scored, "--stop_stage", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    mixture = yaml.safe_load((large / "data" / "mixture.yaml").read_text())["sources"]
    assert [(source["type"], source["weight"]) for source in mixture] == [
        ("shard", 0.25),
        ("shard", 0.75),
    ]
    listed = [(large / source["data_list"]).read_text().split() for source in mixture]
    assert listed == [
        [f"s3://corpora/toy/one/shards_00000000{number}.tar" for number in range(3)],
        [f"s3://corpora/toy/two/shards_00000000{number}.tar" for number in range(2)],
    ]
    assert all(
        bucket.exists(uri) and bucket.exists(f"{uri}.idx") for uris in listed for uri in uris
    )
    assert len(bucket.find("corpora")) == 10
    assert len(read_table(large / "data" / "train" / "text")) == 18
    assert set(read_table(large / "data" / "test" / "text")) == {
        "one-utt0",
        "one-utt1",
        "two-utt0",
        "two-utt1",
    }
    assert "18 read, 0 filtered, 0 bad" in done.stdout + done.stderr
    # characters; words are 4
    assert re.search(r"^attention +[\d.]+ +6 ", done.stdout, re.MULTILINE)

    again = call(*run, "--stage", "3", "--stop_stage", "3", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "3 shards in s3://corpora/toy/one, 0 of them copied" in again.stdout


@pytest.mark.all
@pytest.mark.usefixtures("bucket")
def test_two_machines_train(large, tmp_path):
    sources = make_sources(tmp_path / "corpora")
    run = (
        "bash",
        large / "run.sh",
        "--sources",
        sources,
        "--storage",
        "s3://corpora/toy",
        "--override",
        TINY,
    )
    pack = call(*run, "--num_utts_per_shard", "4", "--nj", "1", "--stop_stage", "3", cwd=tmp_path)
    assert pack.returncode == 0, pack.stderr
    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting = f"127.0.0.1:{server.getsockname()[1]}"
    train = (
        *run,
        "--stage",
        "4",
        "--stop_stage",
        "4",
        "--num_nodes",
        "2",
        "--rdzv_endpoint",
        meeting,
        "--node_rank",
    )
    with ThreadPoolExecutor(2) as machines:
        first, second = machines.map(lambda rank: call(*train, rank, cwd=tmp_path), ("0", "1"))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    # Which machine has rank 0, and logs, is the rendezvous's choice.
    assert "18 read, 0 filtered, 0 bad" in "".join(
        (first.stdout, first.stderr, second.stdout, second.stderr)
    )
    assert list(large.glob("exp/train_conformer/epoch_0*"))


@pytest.mark.all
def test_pieces_of_words_and_symbols_are_the_units_that_are_trained(large, tmp_path):
    corpora = tmp_path / "it's my: corpora #1"
    sources = make_sources(corpora)
    for part in ("one/train", "two/train"):
        keys = read_table(corpora / part / "text")
        lines(corpora / part / "text", *(f"{key} the other day <NOISE>" for key in keys))
    lines(corpora / "my symbols", "<NOISE>")
    options = (
        "--sources",
        sources,
        "--bpe",
        "13",
        "--non_lang_syms",
        corpora / "my symbols",
        "--nj",
        "1",
        "--override",
        TINY,
    )
    run = ("bash", large / "run.sh", *options, "--data_type", "raw", "--stop_stage", "4")
    done = call(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = load_config(large / "exp" / "train_conformer_bpe13" / "train.yaml")
    assert config.tokenizer == "bpe"
    with pytest.MonkeyPatch.context() as context:
        context.chdir(large)
        tokens, _ = build_tokenizer(config).tokenize("the day <NOISE>")
    assert tokens[-1] == "<NOISE>"
    assert tokens[0].startswith("▁")
    assert "<NOISE>" in (large / "data" / "dict_bpe13" / "units.txt").read_text()


@pytest.mark.all
def test_sources_with_and_without_segments_and_equal_file_names_are_mixed(large, tmp_path):
    for name in ("cut", "whole"):
        for part in ("train", "dev", "test"):
            folder = tmp_path / name / part
            noise(folder / "call0.wav", seconds=1.0)
            lines(folder / "wav.scp", f"call0 {folder}/call0.wav")
            if name == "cut":
                lines(folder / "segments", "a call0 0.000 0.400", "b call0 0.500 0.800")
            lines(
                folder / "text",
                *(f"{key} yes" for key in (("a", "b") if name == "cut" else ("call0",))),
            )
    lines(
        tmp_path / "s.yaml",
        "- {name: cut, data: cut, weight: 1}",
        "- {name: whole, data: whole, weight: 1}",
    )
    run = ("bash", large / "run.sh", "--sources", "s.yaml", "--nj", "1")
    assert call(*run, "--stop_stage", "0", cwd=tmp_path).returncode == 0
    for data_type in ("raw", "shard"):
        done = call(
            *run, "--data_type", data_type, "--stage", "3", "--stop_stage", "3", cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        for part, seconds in (
            ("sources/cut", 0.7),
            ("sources/whole", 1.0),
            ("dev", 1.7),
            ("test", 1.7),
        ):
            totals = json.loads((large / "data" / part / "data.list.json").read_text())["totals"]
            assert totals["seconds"] == pytest.approx(seconds)


@pytest.mark.all
def test_one_bad_file_stops_the_lists_unless_it_is_allowed(large, tmp_path):
    sources = make_sources(tmp_path / "corpora")
    (tmp_path / "corpora" / "one" / "train" / "utt3.wav").write_bytes(b"")
    run = ("bash", large / "run.sh", "--sources", sources, "--nj", "1")
    assert call(*run, "--stop_stage", "0", cwd=tmp_path).returncode == 0
    lists = (*run, "--stage", "3", "--stop_stage", "3")
    stopped = call(*lists, cwd=tmp_path)
    assert stopped.returncode == 1
    assert "error: one-utt3: " in stopped.stderr
    allowed = call(*lists, "--allow_bad", "true", cwd=tmp_path)
    assert allowed.returncode == 0, allowed.stderr
    totals = json.loads((large / "data" / "sources" / "one" / "data.list.json").read_text())[
        "totals"
    ]
    assert (totals["utterances"], totals["bad"]) == (11, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "- {name: a, data: nowhere, weight: 1}",
            "nowhere/train/wav.scp is missing: run stage 0 of the recipe of a",
        ),
        ("- {name: a, data: x, weight: 1, wieght: 1}", "did you mean 'weight'?"),
        (
            "- {name: a, data: x, weight: 1}\n- {name: a, data: y, weight: 1}",
            "with different names, found a, a",
        ),
        ("- {name: my corpus, data: x, weight: 1}", "must be of letters, digits, - and _"),
        ("- {name: ../dict, data: x, weight: 1}", "must be of letters, digits, - and _"),
        ("sources: [{name: a, data: x, weight: 1}]", "s.yaml: expected a list with a line"),
        ("", "s.yaml: expected a list with a line"),
        (None, "s.yaml: No such file or directory; name the yaml of your corpora with --sources"),
    ],
)
def test_sources_that_cannot_be_used_are_one_line(large, tmp_path, text, message):
    if text is not None:
        (tmp_path / "s.yaml").write_text(text)
    done = call(
        "bash",
        large / "run.sh",
        "--sources",
        "s.yaml",
        "--stage",
        "0",
        "--stop_stage",
        "0",
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"error: {tmp_path}/")
    assert message in error


def test_sources_may_have_the_names_of_parts(large, tmp_path):
    make_sources(tmp_path / "corpora")
    lines(
        tmp_path / "s.yaml",
        *(f"- {{name: {name}, data: corpora/one, weight: 1}}" for name in ("train", "dict")),
    )
    done = call("bash", large / "run.sh", "--sources", "s.yaml", "--stop_stage", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["data/sources/train", "data/sources/dict"]
    assert len(read_table(large / "data" / "train" / "text")) == 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data_type", "raw"), "error: --storage S3:/b needs --data_type shard, got raw"),
        ((), "error: 'S3:/b': expected a folder in a store, such as s3://bucket/folder"),
    ],
)
@pytest.mark.parametrize("stage", ["-1", "3"])
def test_an_unusable_store_is_reported_before_packing(large, tmp_path, options, message, stage):
    make_sources(tmp_path / "corpora")
    run = (
        "bash",
        large / "run.sh",
        "--sources",
        "corpora/sources.yaml",
        "--storage",
        "S3:/b",
        *options,
    )
    done = call(*run, "--stage", stage, "--stop_stage", stage, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, message)
    assert not (large / "data").exists()


@pytest.mark.parametrize(
    ("file", "options"),
    [("s3", ("--storage", "s3://corpora/x")), ("ray", ("--executor", "ray", "--stage", "3"))],
)
def test_missing_packages_for_a_store_or_ray_are_reported_before_packing(
    large, tmp_path, monkeypatch, file, options
):
    requirements = large.parents[2] / "requirements"
    requirements.unlink()
    lines(requirements / f"{file}.txt", "package-that-is-not-there")
    monkeypatch.setenv("WENET_UIO_VENV", str(tmp_path / "my venv"))
    (tmp_path / "my venv").mkdir()
    sources = make_sources(tmp_path / "corpora")
    for part in ("one", "two"):
        (large / "data" / "sources").mkdir(parents=True, exist_ok=True)
        (large / "data" / "sources" / part).symlink_to(tmp_path / "corpora" / part / "train")
    done = call(
        "bash", large / "run.sh", "--sources", sources, *options, "--stop_stage", "3", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "lacks package-that-is-not-there" in done.stderr
