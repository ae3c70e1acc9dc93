"""Plots of a plan: the figures of `report_plan`, batch by batch and step by step."""

from __future__ import annotations

import io
import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.passes import sources_of
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.pieces import PlannedBatch
from wenet_uio.diagnose.plan_report import skew_of_steps
from wenet_uio.files import written_aside
from wenet_uio.pages import data_uri, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIX_PARTS = 40
"""The mix of sources is shown for this many consecutive parts of the epoch."""
SHOWN_SOURCES = 10
"""Largest sources that the mix shows; the share of the other sources stays white."""
SHOWN_NAME = 30
"""Last characters of the name of a source that are shown."""


@dataclass(frozen=True)
class PlanSeries:
    """The numbers that the plots of one epoch show."""

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


class PlanCollector:
    """Collects the numbers of the plots from each batch of an epoch; pass it to `report_plan` as
    `on_batch`.

    `corpus` is the corpus of that epoch (`Passes.corpus_of`).
    """

    def __init__(self, corpus: Corpus, measure: Measure, world_size: int) -> None:
        self._sources, self._measure, self._world_size = sources_of(corpus), measure, world_size
        self._frames, self._shards = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        self._batches: list[tuple[int, int, int, int]] = []
        self._last: deque[PlannedBatch] = deque(maxlen=world_size)

    def __call__(self, batch: PlannedBatch) -> None:
        """Take the next batch of the epoch."""
        self._frames += [piece.frames.astype(np.int32) for piece in batch.pieces]
        self._shards += [piece.shards.astype(np.int32) for piece in batch.pieces]
        frames = sum(int(piece.frames.sum()) for piece in batch.pieces)
        self._batches.append(
            (len(batch), frames, sum(piece.padded_frames for piece in batch.pieces), batch.cost)
        )
        self._last.append(batch)

    def series(self) -> PlanSeries:
        """Return the numbers of the epoch, after its last batch."""
        sizes, frames, padded, costs = np.array(self._batches, np.int64).reshape(-1, 4).T
        count, names = len(sizes), self._sources.names
        parts = max(1, min(MIX_PARTS, count))
        part = np.repeat(np.arange(count) * parts // max(1, count), sizes)
        source = self._sources.numbers(np.concatenate(self._shards))
        mix = np.bincount(part * len(names) + source, minlength=parts * len(names)).reshape(
            parts, len(names)
        )
        rest = list(self._last)[len(self._last) - count % self._world_size :]
        shift, rate = self._measure.frame_count.shift, self._measure.frame_count.sample_rate
        padding, cost = (
            100 * (padded - frames) / np.maximum(1, padded),
            100 * costs / self._measure.policy.bound,
        )
        skew = skew_of_steps(
            costs, [piece for batch in rest for piece in batch.pieces], self._world_size
        )

        return PlanSeries(
            np.concatenate(self._frames) * (shift / rate), padding, cost, mix, skew, names
        )


def check_plot_path(path: str) -> None:
    """Check the suffix of the file for `write_plot`.

    Raises:
        ValueError: the suffix is neither .png nor .html.
    """
    if Path(path).suffix not in (".png", ".html"):
        raise ValueError(f"{path}: plots are written as .png or .html, not {Path(path).suffix!r}")


def write_plot(path: str, series: PlanSeries, figures: dict[str, object], title: str) -> None:
    """Write the plots as .png, or as a page (.html) with a table of `figures`, those of the
    report.
    """
    plots = _plots(series, title)
    if Path(path).suffix != ".html":
        with written_aside(path) as file:
            file.write(plots)
        return

    texts = {
        name: json.dumps(value) if isinstance(value, dict) else str(value)
        for name, value in figures.items()
    }
    with written_aside(path, "w") as file:
        file.writelines(
            render("plan", title=title, figures=texts, plots=data_uri(plots, "image/png"))
        )


def _plots(series: PlanSeries, title: str) -> bytes:
    """Draw five panels, as PNG."""
    from matplotlib.figure import Figure  # slow to import; pyplot would keep global state

    figure = Figure(figsize=(14, 7.5), layout="constrained")
    figure.suptitle(title, parse_math=False)
    axes = figure.subplot_mosaic([["seconds", "padding", "cost"], ["mix", "names", "skew"]])

    for name, values, what, unit, counted in (
        ("seconds", series.seconds, "Length of utterances", "seconds", "utterances"),
        ("padding", series.padding, "Padding of batches", "% of frames", "batches"),
        ("cost", series.cost, "Cost of batches", "% of the bound", "batches"),
    ):
        mean = values.mean() if len(values) else 0.0
        axes[name].hist(values, bins=60)
        axes[name].axvline(mean, color="black", linestyle="--")
        axes[name].set(title=f"{what}: mean {mean:.2f} {unit}", xlabel=unit, ylabel=counted)

    _plot_mix(series, axes["mix"], axes["names"])
    axes["skew"].set(
        title="Step skew: costliest rank / mean", xlabel="step", ylabel="ratio of costs"
    )
    axes["skew"].plot(series.skew, ".", markersize=3)
    axes["skew"].ticklabel_format(useOffset=False)
    figure.savefig(file := io.BytesIO(), format="png", dpi=110)

    return file.getvalue()


def _plot_mix(series: PlanSeries, mix: Axes, legend: Axes) -> None:
    """Draw the share of each source over the epoch, and the names of the sources."""
    largest = np.argsort(-series.mix.sum(axis=0), kind="stable")[:SHOWN_SOURCES]
    percent = 100 * series.mix.T[largest] / np.maximum(1, series.mix.sum(axis=1))
    shares = 100 * series.mix.sum(axis=0) / max(1, series.mix.sum())
    names = [series.sources[number][-SHOWN_NAME:].replace("$", r"\$") for number in largest]
    labels = [f"{share:.1f} % {name}" for share, name in zip(shares[largest], names, strict=True)]
    edges, percent = (
        np.linspace(0, 100, len(series.mix) + 1),
        np.pad(percent, ((0, 0), (0, 1)), "edge"),
    )
    bands = mix.stackplot(edges, percent, step="post")
    mix.set(
        title="Mix of sources, % of utterances",
        xlabel="% of the epoch",
        xlim=(0, 100),
        ylim=(0, 100),
    )
    legend.axis("off")
    legend.legend(bands, labels, loc="center left", reverse=True)
