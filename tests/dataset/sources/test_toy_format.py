"""A list format is a module and one line.

The toy format here, lines of `key|path|text`, is added in exactly the places that CONTRIBUTING.md
names. It is opened, mixed, indexed by the tool, and gives the batches of the same raw list.
"""

import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.support.data.tars import wav
from wenet_uio.config import ConfigError, parse_config
from wenet_uio.config import source as table
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.open import open_corpus

MODULE = """
from pathlib import Path

from wenet_uio.config.source import Paths
from wenet_uio.dataset.formats.data_list import ListError, RawLine
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.sources.lists import AudioSourceConf, expanded, listed


class BarsConf(AudioSourceConf):
    bars_path: Paths


def _lists(conf):
    return [ListSource(_raw_list(path), "raw", conf.layout) for path in expanded(conf.bars_path)]


def _raw_list(path):
    lines = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        fields = line.split("|")
        if len(fields) != 3:
            raise ListError(f"{path}:{number}: expected key|path|text, found {line!r}")
        lines.append(RawLine(*fields).to_json())

    data_list = Path(f"{path}.list")
    data_list.write_text("\\n".join(lines) + "\\n")
    return str(data_list)


BARS = listed(BarsConf, _lists)
"""
CONFIG = {
    "output_dim": 9,
    "dataset_conf": {"batch_conf": {"batch_type": "static", "batch_size": 2}},
}


@pytest.fixture
def bars(tmp_path, monkeypatch):
    """The format, and a file in it beside a raw list of the same utterances."""
    (tmp_path / "toy_bars.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(table.SOURCES, "bars", "toy_bars:BARS")
    # The sections of all types are remembered.
    for remembered in (table.source_sections, table._all_keys):
        remembered.cache_clear()

    lines = []
    for number in range(5):
        path = tmp_path / f"{number}.wav"
        path.write_bytes(wav(0.3 + 0.1 * number))
        lines.append(RawLine(f"u{number}", str(path), "a b"))

    (tmp_path / "data.list").write_text("".join(line.to_json() + "\n" for line in lines))
    (tmp_path / "a.bars").write_text("".join(f"{u.key}|{u.wav}|{u.text}\n" for u in lines))
    yield str(tmp_path / "a.bars")
    sys.modules.pop("toy_bars", None)
    for remembered in (table.source_sections, table._all_keys):
        remembered.cache_clear()


def batches_of(data):
    config = parse_config(CONFIG, "test")
    loader = build_loader(data, "raw", config, lambda text: [1, 2], training=True)
    return list(loader)


def test_it_gives_the_batches_of_the_same_raw_list(bars, tmp_path):
    mixture = tmp_path / "mix.yaml"
    mixture.write_text(yaml.safe_dump([{"type": "bars", "bars_path": bars}]))
    raw = tmp_path / "raw.yaml"
    raw.write_text(yaml.safe_dump([{"type": "raw", "data_list": str(Path(tmp_path, "data.list"))}]))
    for found, expected in zip(batches_of(str(mixture)), batches_of(str(raw)), strict=True):
        assert found.keys == expected.keys
        assert torch.equal(found.feats, expected.feats)


def test_its_keys_are_checked_and_its_errors_name_the_line(bars, tmp_path):
    mixture = tmp_path / "mix.yaml"
    mixture.write_text(yaml.safe_dump([{"type": "bars", "bar_path": bars}]))
    with pytest.raises(ConfigError, match="bar_path: unknown key; did you mean 'bars_path'"):
        open_corpus(str(mixture), "raw")

    mixture.write_text(yaml.safe_dump([{"type": "raw", "data_list": "a", "bars_path": bars}]))
    with pytest.raises(ConfigError, match="a source of type raw has no bars_path; bars has"):
        open_corpus(str(mixture), "raw")

    Path(bars).write_text("a|b\n")
    mixture.write_text(yaml.safe_dump([{"type": "bars", "bars_path": bars}]))
    with pytest.raises(ValueError, match=r"a\.bars:1: expected key\|path\|text"):
        open_corpus(str(mixture), "raw")
