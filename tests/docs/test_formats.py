"""The programs on the pages of the file formats read what wenet_uio reads."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tests.docs.test_how_to import CONFIG
from tests.support.data.packing import pack
from tests.support.docs.blocks import DOCS, blocks_of
from wenet_uio.bin import train
from wenet_uio.config import parse_config
from wenet_uio.dataset import Ledger, LoaderOptions, SampleRef, build_loader, open_corpus
from wenet_uio.dataset.corpus.columns import MAGIC, read_columns
from wenet_uio.dataset.corpus.shard_index import pages_of
from wenet_uio.dataset.formats.data_list import RawLine, parse_raw_line
from wenet_uio.models.cmvn import load_cmvn
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.sharding import ShardOptions
from wenet_uio.text.symbols import read_symbols, write_symbols

PAGES = DOCS / "reference" / "formats"


@pytest.fixture(scope="module")
def read():
    """The functions of all pages, by name."""
    names = {}
    for page in sorted(PAGES.glob("*.md")):
        for block in blocks_of(page):
            assert block.kind == "python", page
            assert block.why_not_run is None
            exec(compile(block.text, str(page), "exec"), names)
    return names


@pytest.fixture
def lists(make_utterances, tmp_path):
    """A raw list and a shard list of seven samples: plain ones, one with a field, one segment."""
    lines = make_utterances(7)
    lines[1] = RawLine("Überall", lines[1].wav, "ä b ", extra={"speaker": "ann"})
    lines[6] = RawLine(lines[6].key, lines[6].wav, "ab", 0.05, 0.25)
    raw, shard = (str(tmp_path / f"{kind}.list") for kind in ("raw", "shard"))
    make_raw_list(lines, raw, 4)
    pack(lines, tmp_path / "shards", shard, ShardOptions(per_shard=4))
    return {"raw": raw, "shard": shard}


def columns_of(page, heading):
    """Names in the first column of the first table below a heading."""
    text = (PAGES / page).read_text(encoding="utf-8").split(f"\n## {heading}")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_the_index_of_a_list_is_read_by_the_page_alone(kind, lists, read):
    columns, meta = read["read_index"](f"{lists[kind]}.idx")
    ours, our_meta = read_columns(f"{lists[kind]}.idx")
    assert columns.keys() == ours.keys()
    assert all(np.array_equal(columns[name], ours[name]) for name in ours)
    assert meta == our_meta
    assert (
        meta["summary"]["digest"]
        == read["digest_of"](columns)
        == open_corpus(lists[kind], kind).digest
    )
    described = columns_of("indexes.md", "Index of a list") | columns_of(
        "indexes.md", "Columns of samples"
    )
    assert columns.keys() | meta.keys() <= described
    if kind == "shard":
        ends = columns["path_end"].tolist()
        paths = [
            columns["paths"][start:end].tobytes().decode()
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        assert paths == read["read_shard_list"](lists[kind])


def test_the_index_of_a_tar_gives_each_sample_of_the_tar(lists, read):
    corpus = open_corpus(lists["shard"], "shard")
    tars = read["read_shard_list"](lists["shard"])
    with_records = []
    for shard, tar in enumerate(tars):
        columns, meta = read["read_index"](f"{tar}.idx")
        assert columns.keys() <= columns_of("indexes.md", "Columns of samples")
        assert meta.keys() <= columns_of("indexes.md", "Index of a tar")
        assert meta["tar_pages"] == pages_of(tar)
        samples = read["read_shard"](tar)
        keys = read["keys_of"](columns)
        assert keys == list(samples)
        for row, key in enumerate(keys):
            utterance = corpus.read(SampleRef(shard, row))
            audio, text = read["sample_of"](tar, columns, row)
            suffix, whole, stored, extra = samples[key]
            assert (utterance.key, bytes(utterance.audio), utterance.text) == (key, audio, text)
            assert (suffix, whole, stored, extra) == ("wav", audio, text, utterance.extra)
        with_records.append("records" in columns)
    assert with_records == [True, False]


def test_a_raw_list_is_read_by_the_page_alone(lists, read):
    path = Path(lists["raw"])
    nemo = {
        "key": "n",
        "audio_filepath": "a.wav",
        "text": "x",
        "offset": 2,
        "duration": 1.5,
        "lang": "de",
    }
    path.write_text("\ufeff" + path.read_text() + "\n" + json.dumps(nemo) + "\n")
    lines = [
        parse_raw_line(line) for line in path.read_text(encoding="utf-8-sig").splitlines() if line
    ]
    expected = {line.key: (line.wav, line.text, line.start, line.end, line.extra) for line in lines}
    assert read["read_raw_list"](path) == expected
    assert len(expected) == 8


def test_the_record_of_a_list_has_the_keys_of_the_page(lists):
    described = columns_of("lists.md", "What was packed")
    for path in lists.values():
        record = json.loads(Path(f"{path}.json").read_text())
        assert record.keys() <= described
        text = (PAGES / "lists.md").read_text(encoding="utf-8")
        named = {
            name
            for part in ("totals", "shards")
            for each in [record.get(part, [])]
            for name in keys_in(each)
        }
        assert [name for name in named if f"`{name}`" not in text] == []


def keys_in(part):
    return part.keys() if isinstance(part, dict) else {name for each in part for name in each}


def test_units_and_cmvn_are_read_by_the_page_alone(tmp_path, read):
    write_symbols(tmp_path / "units.txt", ["b", "▁a", "\u2028"])
    with (tmp_path / "units.txt").open("a", encoding="utf-8") as file:
        file.write("two words\t6\n\n")
    assert read["read_units"](tmp_path / "units.txt") == read_symbols(tmp_path / "units.txt")
    stats = {"mean_stat": [10.0, -4.0, 3.0], "var_stat": [60.0, 9.0, 3.0], "frame_num": 3}
    (tmp_path / "cmvn").write_text(json.dumps(stats))
    mean, istd = read["read_cmvn"](tmp_path / "cmvn")
    ours = load_cmvn(tmp_path / "cmvn", is_json=True, dim=3)
    np.testing.assert_allclose(mean, ours.mean.numpy(), rtol=1e-6)
    np.testing.assert_allclose(istd, ours.istd.numpy(), rtol=1e-6)


def test_a_program_that_reads_an_index_refuses_another_version(tmp_path, read):
    (tmp_path / "old.idx").write_bytes(MAGIC[:-1] + b"2" + bytes(100))
    with pytest.raises(AssertionError):
        read["read_index"](tmp_path / "old.idx")


def test_the_state_of_a_loader_has_the_keys_of_the_page_and_is_json(lists):
    config = parse_config(
        {"dataset_conf": {"batch_conf": {"batch_type": "static", "batch_size": 2}}}, "test"
    )
    loader = build_loader(lists["raw"], "raw", config, None, training=True)
    first = next(iter(loader))
    state = loader.state_dict()
    assert state.keys() == columns_of("runs.md", "State of the loader")
    assert (state["position"], state["steps_done"], state["planner"]) == (1, 1, 2)
    assert state["corpus"] == read_columns(f"{lists['raw']}.idx")[1]["summary"]["digest"]
    resumed = build_loader(lists["raw"], "raw", config, None, training=True)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert sum(map(len, resumed)) == 7 - len(first)


def test_the_ledger_has_the_keys_of_the_page(lists, tmp_path, read):
    config = parse_config(
        {"dataset_conf": {"batch_conf": {"batch_type": "static", "batch_size": 2}}}, "test"
    )
    Path(parse_raw_line(Path(lists["raw"]).read_text().splitlines()[0]).wav).unlink()
    ledger = Ledger(tmp_path / "bad_samples.jsonl")
    options = LoaderOptions(ledger=ledger)
    assert (
        sum(
            map(
                len, build_loader(lists["raw"], "raw", config, None, training=True, options=options)
            )
        )
        == 6
    )
    with ledger.path.open("a") as file:
        file.write('{"list": "cut sho')
    assert read["reasons_of"](ledger.path) == Counter(unreadable=1)
    line = json.loads(ledger.path.read_text().splitlines()[0])
    assert line.keys() == columns_of("runs.md", "The ledger")


def test_the_files_of_a_run_are_on_the_page(lists, tmp_path, monkeypatch, read):
    monkeypatch.chdir(tmp_path)
    write_symbols("units.txt", "abä")
    config = CONFIG | {
        "tokenizer_conf": {"symbol_table_path": "units.txt"},
        "max_epoch": 1,
        "report": False,
    }
    Path("train.yaml").write_text(yaml.safe_dump(config))
    options = ["--config", "train.yaml", "--data_type", "raw", "--model_dir", "run"]
    assert not train.main([*options, "--train_data", lists["raw"], "--cv_data", lists["raw"]])
    page = (PAGES / "runs.md").read_text(encoding="utf-8")
    for path in Path("run").iterdir():
        name = re.sub(r"_\d+\.", "_S." if path.name.startswith("state") else "_N.", path.name)
        assert f"`{name}`" in page or f"`{name}/`" in page, name
    state = next(Path("run").glob("state_*.pt"))
    saved = torch.load(state, weights_only=True)
    assert saved.keys() <= columns_of("runs.md", "States")
    weights = read["read_weights"]("run/epoch_0.pt")
    assert weights.keys() == saved["model"].keys()
    assert saved["optimizer"].keys() <= weights.keys()
    record = yaml.safe_load(Path("run/epoch_0.yaml").read_text())
    assert [name for name in record if f"`{name}`" not in page] == []
