"""The page about scale: its computed figures follow from those that it calls measured."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from wenet_uio.dataset.corpus.index import COLUMNS, TABLE_COLUMNS, Stored

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/concepts/scale.md").read_text()
BENCHMARKS = (ROOT / "lab/benchmark/README.md").read_text()

SHARDS, UTTERANCES, GPUS, SPEED, SECONDS = 10**7, 6 * 10**9, 1024, 1000, 6


def bytes_of(dtypes) -> int:
    return sum(np.dtype(dtype).itemsize for dtype in dtypes)


def row(first: str) -> str:
    """The row of a table that begins with these words."""
    (found,) = re.findall(rf"^\| {re.escape(first)}.*$", PAGE, re.MULTILINE)
    return found


def test_sizes_of_the_index_are_those_of_its_columns():
    lengths = bytes_of(COLUMNS[name] for name in Stored._fields)
    table = bytes_of(TABLE_COLUMNS.values()) + 2 * 8  # the first row and the end of the path
    assert f"{lengths} bytes an utterance, {table} bytes" in row("index of the list")
    assert f"{lengths * UTTERANCES / 1e9:.0f} GB of lengths" in row("index of the list")
    assert f"{(table + 60) * SHARDS / 1e9:.1f} GB of shards" in row("index of the list")

    columns = bytes_of(COLUMNS.values())
    assert f"{columns} bytes and the key" in row("indexes of the shards")
    assert f"{(columns + 20) * UTTERANCES / 1e9:.0f} GB" in row("indexes of the shards")


def test_rates_of_the_store_follow_from_gpus_and_speed():
    assert f"{GPUS * SPEED * 32_000 / 1e9:.1f} GB/s" in row("bytes a second")
    assert f"{GPUS * SPEED / 3600:.0f}, each" in row("shards a second")
    (share,) = re.findall(r"([\d.]+) %", row("range requests"))
    requests = GPUS * SPEED / SECONDS * float(share) / 100
    assert f"{round(requests, -2):,.0f}" in row("range requests")
    assert f"{SHARDS * 3600 / GPUS / SPEED / 3600:.1f} hours" in PAGE


def test_times_of_a_start_follow_from_what_was_measured():
    costs = row("costs that need every length")
    measured = [float(number) for number in re.findall(r"(\d\.\d) s", costs)]
    minutes = [round(seconds * UTTERANCES / 1e7 / 60) for seconds in measured]
    assert "{}, {} and {} minutes".format(*sorted(minutes)) in costs

    others = row("making them, tars of others")
    (milliseconds,) = re.findall(r"([\d.]+) ms", others)
    assert f"{float(milliseconds) / 1000 * UTTERANCES / 86400:.0f} days" in others
    assert f"{12 * 10**9 * GPUS / 1e12:.0f} TB" in row("reading it")


def test_measured_and_simulated_figures_are_those_of_the_benchmarks():
    for figure in ("0.82", "0.034", "31.1", "54.8", "24.9", "176", "2.6", "238", "2.77", "5.6"):
        assert figure in BENCHMARKS, figure
        assert figure in PAGE, figure
