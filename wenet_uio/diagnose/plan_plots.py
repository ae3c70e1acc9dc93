"""Pictures of a plan: what `report_plan` says in one number each, batch by batch and step by step."""

from __future__ import annotations

import base64
import html
import io
import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.passes import sources_of
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.dataset.plan.pieces import PlannedBatch
from wenet_uio.diagnose.plan_report import skew_of_steps
from wenet_uio.files import written_aside

MIX_PARTS = 40
"""Consecutive parts of the epoch whose mix is shown."""
SHOWN_SOURCES = 10
"""The largest; the place of the others stays white."""
PAGE = """<!doctype html>
<meta charset="utf-8"><title>{title}</title>
<style>body {{ display: flex; gap: 2em }} th {{ text-align: left }} td {{ overflow-wrap: anywhere }}</style>
<table>{rows}</table> <img alt="" style="width: 70%" src="data:image/png;base64,{picture}">
"""


@dataclass(frozen=True)
class PlanSeries:
    """One epoch in numbers."""

    seconds: np.ndarray
    """(utterances,) as batched: after speed perturbation, in whole frames."""
    padding: np.ndarray
    """(batches,) percent of the padded frames that hold no speech."""
    cost: np.ndarray
    """(batches,) percent of the bound; above 100 for a batch that runs as several."""
    mix: np.ndarray
    """(parts, sources) planned utterances in consecutive parts of the epoch, of equally many batches."""
    skew: np.ndarray
    """(steps,) cost of the dearest rank over the mean of the ranks."""
    sources: tuple[str, ...]


class PlanCollector:
    """Gathers a `PlanSeries` as `on_batch` of `report_plan`; `corpus` is that of the epoch (`Passes.corpus_of`)."""

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
        self._batches.append((len(batch), frames, sum(piece.padded_frames for piece in batch.pieces), batch.cost))
        self._last.append(batch)

    def series(self) -> PlanSeries:
        """Of a whole epoch."""
        sizes, frames, padded, costs = np.array(self._batches, np.int64).reshape(-1, 4).T
        count, names = len(sizes), self._sources.names
        parts = max(1, min(MIX_PARTS, count))
        part = np.repeat(np.arange(count) * parts // max(1, count), sizes)
        source = self._sources.numbers(np.concatenate(self._shards))
        mix = np.bincount(part * len(names) + source, minlength=parts * len(names)).reshape(parts, len(names))
        rest = list(self._last)[len(self._last) - count % self._world_size :]
        shift, rate = self._measure.frame_count.shift, self._measure.frame_count.sample_rate
        padding, cost = 100 * (padded - frames) / np.maximum(1, padded), 100 * costs / self._measure.policy.bound
        skew = skew_of_steps(costs, [piece for batch in rest for piece in batch.pieces], self._world_size)
        return PlanSeries(np.concatenate(self._frames) * (shift / rate), padding, cost, mix, skew, names)


def check_plot_path(path: str) -> None:
    """Refuse a file that `write_plot` cannot write, with a ValueError."""
    if Path(path).suffix not in (".png", ".html"):
        raise ValueError(f"{path}: plots are written as .png or .html, not {Path(path).suffix!r}")


def write_plot(path: str, series: PlanSeries, figures: dict[str, object], title: str) -> None:
    """Write the picture as .png, or as .html beside a table of `figures`, those of the report."""
    content = _picture(series, title)
    if Path(path).suffix == ".html":
        texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in figures.items()}
        rows = "".join(f"<tr><th>{html.escape(name)}<td>{html.escape(text)}\n" for name, text in texts.items())
        picture = base64.b64encode(content).decode()
        content = PAGE.format(title=html.escape(title), rows=rows, picture=picture).encode()
    with written_aside(path) as file:
        file.write(content)


def _picture(series: PlanSeries, title: str) -> bytes:
    """Five panels, as PNG."""
    from matplotlib.figure import Figure  # slow to import; no pyplot, whose state is everyone's

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
    largest = np.argsort(-series.mix.sum(axis=0), kind="stable")[:SHOWN_SOURCES]
    percent = 100 * series.mix.T[largest] / np.maximum(1, series.mix.sum(axis=1))
    shares = 100 * series.mix.sum(axis=0) / max(1, series.mix.sum())
    names = [series.sources[number][-30:].replace("$", r"\$") for number in largest]
    labels = [f"{share:.1f} % {name}" for share, name in zip(shares[largest], names, strict=True)]
    edges, percent = np.linspace(0, 100, len(series.mix) + 1), np.pad(percent, ((0, 0), (0, 1)), "edge")
    bands = axes["mix"].stackplot(edges, percent, step="post")
    axes["mix"].set(title="Mix of sources, % of utterances", xlabel="% of the epoch", xlim=(0, 100), ylim=(0, 100))
    axes["names"].axis("off")
    axes["names"].legend(bands, labels, loc="center left", reverse=True)
    axes["skew"].set(title="Step skew: dearest rank over the mean", xlabel="step", ylabel="ratio of costs")
    axes["skew"].plot(series.skew, ".", markersize=3)
    axes["skew"].ticklabel_format(useOffset=False)
    figure.savefig(file := io.BytesIO(), format="png", dpi=110)
    return file.getvalue()
