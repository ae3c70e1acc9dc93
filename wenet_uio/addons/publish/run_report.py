"""Write report.html of a training run: one page with its pictures, which needs no other file."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup

from wenet_uio.addons.publish.calibrations import calibrations
from wenet_uio.addons.publish.error_rates import (
    Table,
    describe_share,
    error_rates,
    table_of_changes,
)
from wenet_uio.base.files import read_lines, written_aside
from wenet_uio.base.pages import data_uri, render, spelled
from wenet_uio.base.pages.charts import line_chart
from wenet_uio.base.run_files import (
    FINAL_WEIGHTS,
    LEDGER,
    TRAIN_CONFIG,
    read_starts,
    recorded_board_folder,
)
from wenet_uio.config.train import ENDLESS
from wenet_uio.train.baseline import BEFORE

if TYPE_CHECKING:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

Series = dict[str, list[tuple[int, float]]]
"""TensorBoard scalars: each tag with its points (step, value)."""

TRAINING, VALIDATION = "training", "validation"
CURVES = (
    ("Loss", {"train/loss": TRAINING, "cv/loss": VALIDATION}),
    ("CTC loss", {"train/loss_ctc": TRAINING, "cv/loss_ctc": VALIDATION}),
    ("Attention loss", {"train/loss_att": TRAINING, "cv/loss_att": VALIDATION}),
    ("Contrastive loss", {"train/loss_ctl": TRAINING, "cv/loss_ctl": VALIDATION}),
    ("Accuracy of the decoder", {"train/th_accuracy": TRAINING, "cv/th_accuracy": VALIDATION}),
    ("Learning rate", {"train/lr": TRAINING}),
    ("Norm of the gradient", {"train/grad_norm": TRAINING}),
    ("Seconds of audio per second", {"train/audio_seconds_per_second": TRAINING}),
    (
        "Share of time and of frames",
        {"train/data_wait": "waiting for data", "train/padding": "padding"},
    ),
)
"""Title of each chart, and the tags that the chart shows, with their names."""
EPOCH = {
    "cv/loss": "validation loss",
    "cv/loss_ctc": "CTC loss",
    "cv/loss_att": "attention loss",
    "cv/th_accuracy": "accuracy of the decoder",
    "data/read": "utterances read",
    "data/filtered": "left out by filters",
    "data/bad": "bad",
}
"""Tags with one point per epoch: the columns of the table of epochs, with their names."""
SHOWN_POINTS = 1000
"""A curve shows about this many points at most; longer curves are thinned out."""
BAD_COLUMNS = ("key", "reason", "detail")
"""What the page shows of a line of bad_samples.jsonl."""
SHOWN_BAD = 20
"""Bad samples that the page lists."""
SHOWN_STARTS = 3
"""Starts of the run whose environments the page lists: the first one and the latest."""


def write_run_report(folder: str | Path, tensorboard_dir: str | Path | None = None) -> Path:
    """Write report.html into the folder of a run and return its path.

    Args:
        tensorboard_dir: event files of the run; the default is where its newest start wrote them.

    Raises:
        ValueError: the folder has no train.yaml, so that it holds no run.
    """
    folder = Path(folder)
    config = folder / TRAIN_CONFIG
    if not config.exists():
        raise ValueError(f"{folder}: no run here, the folder has no train.yaml")

    events = _read_events(Path(tensorboard_dir or recorded_board_folder(folder)))
    series = _scalar_series(events)
    text = config.read_text(encoding="utf-8")
    max_epoch = _epoch_limit(text)
    bad = read_lines(folder / LEDGER, BAD_COLUMNS)
    bad_rows: list[list[Any]] = []
    for line in bad[:SHOWN_BAD]:
        bad_rows.append([line[name] for name in BAD_COLUMNS])

    page = render(
        "run",
        title=folder.resolve().name,
        summary=_summary_text(folder, series, max_epoch),
        share=describe_share(folder),
        results=error_rates(folder),
        changes=table_of_changes(folder),
        calibrations=calibrations(folder),
        curves=_curve_charts(series),
        observed_texts=_observed_texts(events),
        observed_pictures=_observed_pictures(events),
        epochs=_epoch_table(series, max_epoch),
        account=_sample_table(series),
        bad=_bad_summary(bad),
        bad_samples=Table(BAD_COLUMNS, bad_rows),
        environment=_start_table(folder),
        config=text,
    )
    path = folder / "report.html"
    with written_aside(path, "w") as file:
        file.writelines(page)

    return path


def _read_events(folder: Path) -> EventAccumulator:
    """Read the event files of a folder; there are none if training wrote no TensorBoard."""
    # Slow to import
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # A size of 0 keeps all points; 1 keeps the newest.
    events = EventAccumulator(
        str(folder), size_guidance={"scalars": 0, "images": 1, "histograms": 1, "tensors": 1}
    )
    # At INFO it logs every file that it reads
    logging.getLogger("tensorboard").setLevel(logging.WARNING)
    if folder.is_dir():
        events.Reload()

    return events


def _scalar_series(events: EventAccumulator) -> Series:
    series: Series = {}
    for tag in sorted(events.Tags()["scalars"]):
        points = [(event.step, event.value) for event in events.Scalars(tag)]
        if points:  # a restart may leave a name without points
            series[tag] = points

    return series


def _summary_text(folder: Path, series: Series, max_epoch: int | None) -> str:
    """Say how far the run is, and its lowest validation loss."""
    losses = series.get("cv/loss", [])
    if not losses:
        return "No epoch is complete yet."

    # A run that starts from a trained model has a point before the first step.
    before = [loss for step, loss in losses if step == 0]
    losses = [(step, loss) for step, loss in losses if step > 0]
    start = f"Before fine-tuning: validation loss {_short_number(before[0])}. " if before else ""
    if not losses:
        return f"{start}No epoch is complete yet."

    finite_losses = [loss if math.isfinite(loss) else math.inf for _, loss in losses]
    best = finite_losses.index(min(finite_losses))
    last_step, _ = losses[-1]
    _, lowest_loss = losses[best]
    state = "Complete" if (folder / FINAL_WEIGHTS).exists() else "Not complete"
    of_all = _of_all_epochs(max_epoch)
    return (
        f"{start}{state}: {len(losses)}{of_all} epochs, {last_step} optimizer steps. Lowest "
        f"validation loss {_short_number(lowest_loss)}, after epoch {best + 1}{of_all} (epoch_{best})."
    )


def _of_all_epochs(max_epoch: int | None) -> str:
    return "" if max_epoch is None else f" of {max_epoch}"


def _epoch_table(series: Series, max_epoch: int | None) -> Table:
    """Return figures of each epoch, which is counted from 1; the names of files count from 0."""
    curves = {name: dict(series[tag]) for tag, name in EPOCH.items() if tag in series}
    steps = [step for step, _ in series.get("cv/loss", [])]
    of_all = _of_all_epochs(max_epoch)
    first = BEFORE if 0 in steps else 0
    rows = []
    for epoch, step in enumerate(steps, first):
        names = [f"{epoch + 1}{of_all}", f"epoch_{epoch}"]
        if epoch == BEFORE:  # the model that the run started from
            names = ["before", ""]
        figures = [_short_number(points.get(step)) for points in curves.values()]
        rows.append([*names, str(step), *figures])

    return Table(("epoch", "name of its files", "steps", *curves), rows)


def _epoch_limit(config: str) -> int | None:
    """Return the number of epochs in the text of a train.yaml; None if steps end the run."""
    loaded = yaml.safe_load(config)
    max_epoch = loaded.get("max_epoch") if isinstance(loaded, dict) else None
    return None if max_epoch == ENDLESS else max_epoch


def _sample_table(series: Series) -> Table:
    """Return how many utterances of the last epoch were read, filtered and bad."""
    rows: list[list[str]] = []
    for tag, points in series.items():
        if tag.startswith("data/"):
            rows.append([tag.removeprefix("data/"), _short_number(points[-1][1])])

    return Table(("utterances of the last epoch", ""), rows)


def _bad_summary(bad: Sequence[Mapping[str, Any]]) -> str:
    """Count bad samples by reason; empty if there are none."""
    if not bad:
        return ""
    reasons = Counter(line["reason"] for line in bad)
    counted = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"Bad samples ({LEDGER}): {counted}. The first:"


def _start_table(folder: Path) -> Table:
    """Tabulate versions, hardware and command of the starts of the run, one column per start."""
    starts = read_starts(folder)
    names = dict.fromkeys(name for start in starts for name in start)
    shown = list(enumerate(starts, 1))
    if len(shown) > SHOWN_STARTS:
        latest = shown[-(SHOWN_STARTS - 1) :]
        shown = [shown[0], *latest]

    head = ("", *(f"start {number} of {len(starts)}" for number, _ in shown))
    rows: list[list[str]] = []
    for name in names:
        rows.append([name, *(spelled(start.get(name)) for _, start in shown)])
    return Table(head, rows)


def _short_number(value: float | None) -> str:
    """Format a count in full and other numbers with four digits."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "not finite"
    return f"{value:.4g}" if value % 1 else f"{value:.0f}"


def _observed_texts(events: EventAccumulator) -> list[tuple[int, str]]:
    """Return the latest recognised texts, with their step; empty if there are none."""
    tag = "dev/text/text_summary"
    tensors = events.Tensors(tag) if tag in events.Tags()["tensors"] else []
    if not tensors:
        return []

    last: Any = tensors[-1]
    text = last.tensor_proto.string_val[0].decode()
    # In Markdown, which TensorBoard shows, a blank line separates lines.
    return [(last.step, text.replace("\n\n", "\n"))]


def _observed_pictures(events: EventAccumulator) -> list[tuple[str, str]]:
    """Return the latest picture of each tag, with its name."""
    pictures: list[tuple[str, str]] = []
    for tag in events.Tags()["images"]:
        images = events.Images(tag)
        if images:
            name = tag.removeprefix("dev/").replace("_", " ")
            pictures.append((name, data_uri(images[-1].encoded_image_string, "image/png")))

    return pictures


def _curve_charts(series: Series) -> list[Markup]:
    """Draw all curves that have points."""
    charts = []
    for title, names in CURVES:
        lines = {}
        for tag, name in names.items():
            points = series.get(tag)
            if points:
                stride = 1 + len(points) // SHOWN_POINTS
                lines[name] = points[::stride]
        if lines:
            charts.append(line_chart(title, "optimizer step", lines))

    return charts
