"""The page of a plan: its figures, the explorer of ranks and steps, and plots."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup

from wenet_uio.base.files import written_aside
from wenet_uio.base.pages import json_data, render, spelled
from wenet_uio.base.pages.charts import COLOURS, bar_chart, line_chart
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.plan.groups import PlannedBatch
from wenet_uio.dataset.plan.measure import Measure
from wenet_uio.prepare.diagnose.plan_cells import CellCollector
from wenet_uio.prepare.diagnose.plan_plots import (
    PlanCollector,
    PlanSeries,
    largest_sources,
    write_plot,
)
from wenet_uio.prepare.diagnose.plan_report import PlanReport

BARS = 60
"""Bars of a histogram."""
SHOWN_POINTS = 1000
"""The curve of skew has about this many points at most."""


class PlanFiles:
    """Writes the files of `plan_report.py` from the batches that it has collected.

    `corpus` is the corpus of that epoch (`Passes.corpus_of`).
    """

    def __init__(self, corpus: Corpus, measure: Measure, world_size: int) -> None:
        self._plots = PlanCollector(corpus, measure, world_size)
        self._cells = CellCollector(corpus, measure, world_size)

    def collect(self, batch: PlannedBatch) -> None:
        """Take the next batch of the epoch; pass this method to `report_plan` as `on_batch`."""
        self._plots(batch)
        self._cells(batch)

    def write(
        self, report: PlanReport, title: str, page: str | None, plot: str | None = None
    ) -> None:
        """Write the files that are named.

        Args:
            report: its figures are on the page.
            title: of page and plots.
            page: file of the page.
            plot: file of the plots if it ends in .png, else of the page.
        """
        has_plots_alone = plot is not None and plot.endswith(".png")
        if plot is not None and has_plots_alone:
            write_plot(plot, self._plots.series(), title)

        for path in filter(None, (page, None if has_plots_alone else plot)):
            with written_aside(path, "w") as file:
                file.writelines(self._page(report, title))

    def _page(self, report: PlanReport, title: str) -> Iterator[str]:
        cells = self._cells.data()
        figures = report.as_dict()
        # The page of a plan is the same on every machine.
        del figures["seconds"]
        return render(
            "plan",
            title=title,
            report=report,
            figures={name: spelled(value) or "none" for name, value in figures.items()},
            charts=_charts(self._plots.series()),
            cells=json_data(cells),
            held=len(cells["cost"]),
            named=cells["head"],
            ranks=cells["ranks"],
        )


def _charts(series: PlanSeries) -> list[Markup]:
    """Draw the plots."""
    charts = [
        _histogram("Length of utterances", "s", "seconds", series.seconds),
        _histogram("Padding of batches", "%", "% of frames", series.padding),
        _histogram("Cost of batches", "%", "% of the bound", series.cost),
    ]
    thinned = 1 + len(series.skew) // SHOWN_POINTS
    points = list(enumerate(series.skew.tolist()))[::thinned]
    name = "Skew of steps: cost of the most expensive rank, divided by the mean"
    charts.append(line_chart(name, "step", {"skew": points}))

    if len(series.sources) > 1:
        percent = 100 * series.mix / np.maximum(1, series.mix.sum(axis=1, keepdims=True))
        along = 100 * (np.arange(len(percent)) + 0.5) / len(percent)
        lines = {
            series.sources[source]: list(zip(along.tolist(), percent[:, source], strict=True))
            for source in largest_sources(series)[:COLOURS]
        }
        charts.append(line_chart("Mix of sources, % of utterances", "% of the epoch", lines))

    return charts


def _histogram(title: str, unit: str, along: str, values: np.ndarray) -> Markup:
    counts, edges = np.histogram(values, bins=BARS)
    mean = f": mean {values.mean():.2f} {unit}" if len(values) else ""
    return bar_chart(f"{title}{mean}", along, edges.tolist(), counts.tolist())
