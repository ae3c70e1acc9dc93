"""The page of a plan: its figures, the explorer of ranks and steps, and plots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from wenet_uio.diagnose.plan_plots import PlanSeries, largest_sources
from wenet_uio.diagnose.plan_report import PlanReport
from wenet_uio.files import written_aside
from wenet_uio.pages import json_data, render, spelled
from wenet_uio.pages.charts import COLOURS, bar_chart, line_chart

BARS = 60
"""Bars of a histogram."""
SHOWN_POINTS = 1000
"""The curve of skew has about this many points at most."""


def write_plan_page(
    path: str, report: PlanReport, series: PlanSeries, cells: Mapping[str, Any], title: str
) -> None:
    """Write the page.

    Args:
        report: its figures.
        series: numbers of the plots, from `PlanCollector`.
        cells: the batches of the explorer, from `CellCollector`.
        title: of the page.
    """
    figures = {name: spelled(value) or "none" for name, value in report.as_dict().items()}
    held = len(cells["cost"])
    page = render(
        "plan",
        title=title,
        report=report,
        figures=figures,
        charts=_charts(series),
        cells=json_data(cells),
        held=held,
        named=cells["head"],
        ranks=cells["ranks"],
    )
    with written_aside(path, "w") as file:
        file.writelines(page)


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
