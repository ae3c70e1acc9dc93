"""Plots of a plan: the figures of `report_plan`, batch by batch and step by step."""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wenet_uio.base.files import written_aside
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.plan.groups import PlannedBatch
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.prepare.diagnose.plan_report import skew_of_steps

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
    """Collects the numbers of the plots; pass it to `report_plan` as `on_batch`.

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
        frames = sum(int(piece.frames.sum()) for piece in batch.pieces)
        padded_frames = sum(piece.padded_frames for piece in batch.pieces)
        self._batches.append((len(batch), frames, padded_frames, batch.cost))
        self._last.append(batch)

    def series(self) -> PlanSeries:
        """Return the numbers of the epoch, after its last batch."""
        sizes, frames, padded, costs = np.array(self._batches, np.int64).reshape(-1, 4).T
        frame_count = self._measure.frame_count

        # The batches of an incomplete last step are shared out between the ranks.
        incomplete = len(costs) % self._world_size
        last_batches = list(self._last)[len(self._last) - incomplete :]
        pieces_of_last_step = [piece for batch in last_batches for piece in batch.pieces]

        return PlanSeries(
            seconds=np.concatenate(self._frames) * (frame_count.shift / frame_count.sample_rate),
            padding=100 * (padded - frames) / np.maximum(1, padded),
            cost=100 * costs / self._measure.policy.bound,
            mix=self._mix(sizes),
            skew=skew_of_steps(costs, pieces_of_last_step, self._world_size),
            sources=self._sources.names,
        )

    def _mix(self, sizes: np.ndarray) -> np.ndarray:
        """Count the utterances (parts, sources) in consecutive parts of the epoch.

        Args:
            sizes: (batches,) utterances of each batch.
        """
        batches, sources = len(sizes), len(self._sources.names)
        parts = max(1, min(MIX_PARTS, batches))

        # (utterances,) numbers of part and source, which are counted as one number
        part = np.repeat(np.arange(batches) * parts // max(1, batches), sizes)
        source = self._sources.numbers(np.concatenate(self._shards))
        counts = np.bincount(part * sources + source, minlength=parts * sources)
        return counts.reshape(parts, sources)


def check_plot_path(path: str) -> None:
    """Check the suffix of the file for `--plot`.

    Raises:
        ValueError: the suffix is neither .png nor .html.
    """
    if Path(path).suffix not in (".png", ".html"):
        raise ValueError(f"{path}: plots are written as .png or .html, not {Path(path).suffix!r}")


def write_plot(path: str, series: PlanSeries, title: str) -> None:
    """Write the plots as .png."""
    plots = _plots(series, title)
    with written_aside(path) as file:
        file.write(plots)


def largest_sources(series: PlanSeries) -> list[int]:
    """Return the numbers of the sources that plots of the mix show, the largest first."""
    return np.argsort(-series.mix.sum(axis=0), kind="stable")[:SHOWN_SOURCES].tolist()


def _plots(series: PlanSeries, title: str) -> bytes:
    """Draw five panels, as PNG."""
    from matplotlib.figure import Figure  # slow to import; pyplot would keep global state

    figure = Figure(figsize=(14, 7.5), layout="constrained")
    figure.suptitle(title, parse_math=False)
    axes = figure.subplot_mosaic([["seconds", "padding", "cost"], ["mix", "names", "skew"]])

    for name, values, title_of_panel, unit, counted in (
        ("seconds", series.seconds, "Length of utterances", "seconds", "utterances"),
        ("padding", series.padding, "Padding of batches", "% of frames", "batches"),
        ("cost", series.cost, "Cost of batches", "% of the bound", "batches"),
    ):
        mean = values.mean() if len(values) else 0.0
        panel_title = f"{title_of_panel}: mean {mean:.2f} {unit}"
        axes[name].hist(values, bins=60)
        axes[name].axvline(mean, color="black", linestyle="--")
        axes[name].set(title=panel_title, xlabel=unit, ylabel=counted)

    _plot_mix(series, axes["mix"], axes["names"])
    axes["skew"].set(
        title="Step skew: costliest rank / mean", xlabel="step", ylabel="ratio of costs"
    )
    axes["skew"].plot(series.skew, ".", markersize=3)
    axes["skew"].ticklabel_format(useOffset=False)

    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def _plot_mix(series: PlanSeries, mix: Axes, legend: Axes) -> None:
    """Draw the share of each source over the epoch, and the names of the sources."""
    utterances = series.mix.sum(axis=0)
    largest = largest_sources(series)
    shares = 100 * utterances[largest] / max(1, series.mix.sum())
    # A $ would begin a formula.
    names = [series.sources[number][-SHOWN_NAME:].replace("$", r"\$") for number in largest]
    labels = [f"{share:.1f} % {name}" for share, name in zip(shares, names, strict=True)]

    # A step plot needs the value of the last part at its end, too.
    percent = 100 * series.mix.T[largest] / np.maximum(1, series.mix.sum(axis=1))
    percent = np.pad(percent, ((0, 0), (0, 1)), "edge")
    edges = np.linspace(0, 100, len(series.mix) + 1)
    bands = mix.stackplot(edges, percent, step="post")
    mix.set(
        title="Mix of sources, % of utterances",
        xlabel="% of the epoch",
        xlim=(0, 100),
        ylim=(0, 100),
    )
    legend.axis("off")
    legend.legend(bands, labels, loc="center left", reverse=True)
