"""The page of a plan: its figures, charts batch by batch and step by step, and the explorer, for which
`pages/plan.js` deals the batches to ranks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from wenet_uio.base.files import written_aside
from wenet_uio.base.pages import json_data, render, spelled
from wenet_uio.base.pages.charts import COLOURS, bar_chart, line_chart
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.plan.groups import Piece, PlannedBatch
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.diagnose.plan_report import PlanReport, skew_of_steps

BARS = 60
"""Bars of a histogram."""
SHOWN_POINTS = 1000
"""The curve of skew has about this many points at most."""
MIX_PARTS = 40
"""The mix of sources is shown for this many consecutive parts of the epoch."""
MOST_BATCHES = 200_000
"""The page holds at most this many batches, which are about 5 MB."""
MOST_UTTERANCES = 50_000
"""The page names about this many utterances, which are about 2 MB: those of the first batches."""
MOST_RANKS = 256
"""The page deals batches to at most this many ranks. It holds all utterances of the last batches
that such a number of ranks could share."""


class PlanPage:
    """Writes the page of `plan_report.py` from the batches that it has collected.

    `corpus` is the corpus of that epoch (`Passes.corpus_of`).
    """

    def __init__(self, corpus: Corpus, measure: Measure, world_size: int) -> None:
        self._series = SeriesCollector(corpus, measure, world_size)
        self._cells = CellCollector(corpus, measure, world_size)

    def collect(self, batch: PlannedBatch) -> None:
        """Take the next batch of the epoch; pass this method to `report_plan` as `on_batch`."""
        self._series(batch)
        self._cells(batch)

    def write(self, report: PlanReport, title: str, path: str) -> None:
        """Write the page; the figures of the report are on it."""
        cells = self._cells.data()
        figures = report.as_dict()
        # The page of a plan is the same on every machine.
        del figures["seconds"]
        page = render(
            "plan",
            title=title,
            report=report,
            figures={name: spelled(value) or "none" for name, value in figures.items()},
            charts=plan_charts(self._series.series()),
            cells=json_data(cells),
            held=len(cells["cost"]),
            named=cells["head"],
            ranks=cells["ranks"],
        )
        with written_aside(path, "w") as file:
            file.writelines(page)


@dataclass(frozen=True)
class PlanSeries:
    """The numbers that the charts of one epoch show."""

    seconds: np.ndarray
    """(utterances,) durations as batched: after speed perturbation, in whole frames."""
    padding: np.ndarray
    """(batches,) percent of the padded frames that hold no speech."""
    cost: np.ndarray
    """(batches,) percent of the bound; above 100 for a batch that runs as several micro-batches."""
    mix: np.ndarray
    """(parts, sources) planned utterances in consecutive parts of the epoch with equally many
    batches."""
    skew: np.ndarray
    """(steps,) cost of the most expensive rank divided by the mean of the ranks."""
    sources: tuple[str, ...]


class SeriesCollector:
    """Collects the numbers of the charts; pass it to `report_plan` as `on_batch`.

    `corpus` is the corpus of that epoch (`Passes.corpus_of`).
    """

    def __init__(self, corpus: Corpus, measure: Measure, world_size: int) -> None:
        self._sources = corpus.shard_sources
        self._measure = measure
        self._world_size = world_size
        # Each starts with an empty array, so that an epoch without batches can be concatenated.
        self._frames = [np.empty(0, np.int32)]
        self._shards = [np.empty(0, np.int32)]
        self._batches: list[tuple[int, int, int, int]] = []
        """Utterances, frames, padded frames and cost of each batch."""
        self._last: deque[PlannedBatch] = deque(maxlen=world_size)

    def __call__(self, batch: PlannedBatch) -> None:
        """Take the next batch of the epoch."""
        self._frames += [piece.frames.astype(np.int32) for piece in batch.pieces]
        self._shards += [piece.shards.astype(np.int32) for piece in batch.pieces]
        self._batches.append(_batch_numbers(batch))
        self._last.append(batch)

    def series(self) -> PlanSeries:
        """Return the numbers of the epoch, after its last batch."""
        sizes, frames, padded, costs = np.array(self._batches, np.int64).reshape(-1, 4).T
        frame_count = self._measure.frame_count

        # The batches of an incomplete last step are shared out between the ranks.
        incomplete = len(costs) % self._world_size
        last_batches = list(self._last)[len(self._last) - incomplete :]
        pieces_of_last_step: list[Piece] = []
        for batch in last_batches:
            pieces_of_last_step += batch.pieces

        return PlanSeries(
            seconds=np.concatenate(self._frames) * (frame_count.shift / frame_count.sample_rate),
            padding=100 * (padded - frames) / np.maximum(1, padded),
            cost=100 * costs / self._measure.policy.bound,
            mix=self._source_mix(sizes),
            skew=skew_of_steps(costs, pieces_of_last_step, self._world_size),
            sources=self._sources.names,
        )

    def _source_mix(self, sizes: np.ndarray) -> np.ndarray:
        """Count the utterances (parts, sources) in consecutive parts of the epoch.

        Args:
            sizes: (batches,) utterances of each batch.
        """
        batches, sources = len(sizes), len(self._sources.names)
        parts = max(1, min(MIX_PARTS, batches))
        part_of_batch = np.arange(batches) * parts // max(1, batches)

        # (utterances,) number of the part and of the source, which are counted as one number
        part = np.repeat(part_of_batch, sizes)
        source = self._sources.numbers(np.concatenate(self._shards))
        counts = np.bincount(part * sources + source, minlength=parts * sources)
        return counts.reshape(parts, sources)


def _batch_numbers(batch: PlannedBatch) -> tuple[int, int, int, int]:
    """Return the utterances, frames, padded frames and cost of a batch."""
    frames = sum(int(piece.frames.sum()) for piece in batch.pieces)
    padded_frames = sum(piece.padded_frames for piece in batch.pieces)
    return len(batch), frames, padded_frames, batch.cost


def plan_charts(series: PlanSeries) -> list[Markup]:
    """Draw the numbers of an epoch: lengths, padding, costs, skew, and the mix of several sources."""
    charts = [
        _histogram("Length of utterances", "s", "seconds", series.seconds),
        _histogram("Padding of batches", "%", "% of frames", series.padding),
        _histogram("Cost of batches", "%", "% of the bound", series.cost),
    ]
    every = 1 + len(series.skew) // SHOWN_POINTS
    points = list(enumerate(series.skew.tolist()))[::every]
    name = "Skew of steps: cost of the most expensive rank, divided by the mean"
    charts.append(line_chart(name, "step", {"skew": points}))

    if len(series.sources) > 1:
        # (parts, sources) share of each source in each part of the epoch
        percent = 100 * series.mix / np.maximum(1, series.mix.sum(axis=1, keepdims=True))
        middles = (100 * (np.arange(len(percent)) + 0.5) / len(percent)).tolist()
        largest_first = np.argsort(-series.mix.sum(axis=0), kind="stable")
        lines: dict[str, list[tuple[float, float]]] = {}
        for source in largest_first[:COLOURS].tolist():
            lines[series.sources[source]] = list(zip(middles, percent[:, source], strict=True))

        charts.append(line_chart("Mix of sources, % of utterances", "% of the epoch", lines))

    return charts


def _histogram(title: str, unit: str, along: str, values: np.ndarray) -> Markup:
    counts, edges = np.histogram(values, bins=BARS)
    mean = f": mean {values.mean():.2f} {unit}" if len(values) else ""
    return bar_chart(f"{title}{mean}", along, edges.tolist(), counts.tolist())


class CellCollector:
    """Collects the numbers of each batch; pass it to `report_plan` as `on_batch`.

    `corpus` is the corpus of that epoch (`Passes.corpus_of`).
    """

    def __init__(self, corpus: Corpus, measure: Measure, world_size: int) -> None:
        self._corpus, self._measure, self._world_size = corpus, measure, world_size
        self._total = 0
        self._cells: list[tuple[int, int, int, int]] = []
        """Utterances, frames, padded frames and cost of each batch."""
        self._head: list[PlannedBatch] = []
        self._head_utterances = 0
        self._tail: deque[PlannedBatch] = deque(maxlen=MOST_RANKS - 1)

    def __call__(self, batch: PlannedBatch) -> None:
        """Take the next batch of the epoch."""
        is_next_of_head = len(self._head) == self._total
        self._total += 1
        self._tail.append(batch)
        if self._total > MOST_BATCHES:
            return

        self._cells.append(_batch_numbers(batch))
        if is_next_of_head and self._head_utterances + len(batch) <= MOST_UTTERANCES:
            self._head.append(batch)
            self._head_utterances += len(batch)

    def data(self) -> dict[str, Any]:
        """Return what the page holds, as JSON-able values, after the last batch.

        | name | what |
        |---|---|
        | `total` | batches of the epoch |
        | `ranks`, `most_ranks` | of the report; at most |
        | `bound` | largest cost of a piece |
        | `utterances`, `frames`, `padded`, `cost` | one number for each of the first batches |
        | `head` | so many batches from the first one on have their utterances here |
        | `pieces` | number of utterances of each piece of the batches of the head, and of the last batches |
        | `entries` | number of the entry of each piece, if a mixture joins entries; else null |
        | `keys`, `lengths`, `units`, `speeds` | of the utterances of these batches; lengths in frames |
        """
        held = self._held_batches()
        pieces: list[Piece] = []
        for batch in held:
            pieces += batch.pieces

        utterances, frames, padded, cost = np.array(self._cells, np.int64).reshape(-1, 4).T.tolist()
        frame_count = self._measure.frame_count

        return {
            "total": self._total,
            "ranks": self._world_size,
            "most_ranks": MOST_RANKS,
            "bound": self._measure.policy.bound,
            "seconds_per_frame": frame_count.shift / frame_count.sample_rate,
            "utterances": utterances,
            "frames": frames,
            "padded": padded,
            "cost": cost,
            "head": len(self._head),
            "pieces": [[len(piece) for piece in batch.pieces] for batch in held],
            "entries": self._entry_numbers(held),
            **self._sample_columns(pieces),
        }

    def _held_batches(self) -> list[PlannedBatch]:
        """Return the batches whose utterances the page holds: the first ones and the last ones."""
        if self._total > MOST_BATCHES:
            return self._head
        last_batches = [batch for batch in self._tail if batch.index >= len(self._head)]
        return self._head + last_batches

    def _sample_columns(self, pieces: list[Piece]) -> dict[str, Any]:
        """Return keys, lengths, units and speeds of the utterances of pieces."""
        columns: dict[str, list[Any]] = {}
        for name in ("shards", "rows", "frames", "units", "speeds"):
            columns[name] = []
            for piece in pieces:
                columns[name] += getattr(piece, name).tolist()

        refs = zip(columns["shards"], columns["rows"], strict=True)
        speeds = [round(speed, 3) for speed in columns["speeds"]]
        return {
            "keys": [self._corpus.key(SampleRef(*ref)) for ref in refs],
            "lengths": columns["frames"],
            "units": columns["units"],
            "speeds": speeds if set(speeds) - {1.0} else None,
        }

    def _entry_numbers(self, held: list[PlannedBatch]) -> list[list[int]] | None:
        """Return the number of the entry of each piece; an empty piece is of entry 0."""
        sources = self._corpus.shard_sources
        if not sources.are_joined:
            return None

        numbers: list[list[int]] = []
        for batch in held:
            numbers_of_batch: list[int] = []
            for piece in batch.pieces:
                if len(piece):  # all its utterances are of one entry
                    numbers_of_batch.append(int(sources.entries(piece.shards[:1])[0]))
                else:
                    numbers_of_batch.append(0)

            numbers.append(numbers_of_batch)

        return numbers
