"""Write report.html of a training run: one page with its pictures, which needs no other file."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wenet_uio.files import read_lines, written_aside
from wenet_uio.pages import data_uri, render
from wenet_uio.run_files import FINAL_WEIGHTS, LEDGER, TRAIN_CONFIG, read_starts
from wenet_uio.scoring.bootstrap import LEVEL
from wenet_uio.train.baseline import BEFORE
from wenet_uio.train.pictures import figure_of

if TYPE_CHECKING:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

Series = dict[str, list[tuple[int, float]]]
"""TensorBoard scalars: each tag with its points (step, value)."""

CURVES = (
    ("loss", ("train/loss", "cv/loss")),
    ("CTC loss", ("train/loss_ctc", "cv/loss_ctc")),
    ("attention loss", ("train/loss_att", "cv/loss_att")),
    ("contrastive loss", ("train/loss_ctl", "cv/loss_ctl")),
    ("accuracy of the decoder", ("train/th_accuracy", "cv/th_accuracy")),
    ("learning rate", ("train/lr",)),
    ("gradient norm", ("train/grad_norm",)),
    ("audio seconds per second", ("train/audio_seconds_per_second",)),
    (
        "share of time spent waiting for data, share of padding",
        ("train/data_wait", "train/padding"),
    ),
)
"""Title of each plot, and the tags that the plot shows."""
EPOCH = (
    "cv/loss",
    "cv/loss_ctc",
    "cv/loss_att",
    "cv/th_accuracy",
    "data/read",
    "data/filtered",
    "data/bad",
)
"""Tags with one point per epoch: the columns of the table of epochs."""
SHOWN_POINTS = 2000
"""A curve shows about this many points at most; longer curves are thinned out."""
SHOWN_BAD = 20
"""Bad samples that the page lists."""
SHOWN_STARTS = 3
"""Starts of the run whose environments the page lists: the first one and the latest."""
RATE = re.compile(r"^Overall -> ([0-9.]+) % N=(\d+) C=\d+ S=(\d+) D=(\d+) I=(\d+)$", re.M)
"""The line of totals that compute-wer.py writes."""
INTERVAL = re.compile(rf"^{LEVEL} % interval -> ([0-9.]+ to [0-9.]+) %", re.M)
"""The line of the interval that compute-wer.py writes, except with `--bootstrap 0`."""


class Table(NamedTuple):
    """A table of the page."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_run_report(folder: str | Path, tensorboard_dir: str | Path | None = None) -> Path:
    """Write report.html into the folder of a run and return its path.

    Args:
        tensorboard_dir: event files of the run; the default is `tensorboard` in the folder.

    Raises:
        ValueError: the folder has no train.yaml, so that it holds no run.
    """
    folder = Path(folder)
    config = folder / TRAIN_CONFIG
    if not config.exists():
        raise ValueError(f"{folder}: no run here, the folder has no train.yaml")

    events = _events(Path(tensorboard_dir or folder / "tensorboard"))
    series = _series(events)
    bad = read_lines(folder / LEDGER, ("key", "reason", "detail"))
    page = render(
        "run",
        title=folder.resolve().name,
        summary=_summary(folder, series),
        results=error_rates(folder),
        curves=data_uri(_curves(series), "image/png") if series else None,
        observed_texts=_observed_texts(events),
        observed_pictures=_observed_pictures(events),
        epochs=_epochs(series),
        account=_account(series),
        bad=_bad_summary(bad),
        bad_samples=_bad_samples(bad),
        environment=_environment(folder),
        config=config.read_text(encoding="utf-8"),
    )
    path = folder / "report.html"
    with written_aside(path, "w") as file:
        file.writelines(page)

    return path


def _events(folder: Path) -> EventAccumulator:
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


def _series(events: EventAccumulator) -> Series:
    series: Series = {}
    for tag in sorted(events.Tags()["scalars"]):
        points = [(event.step, event.value) for event in events.Scalars(tag)]
        if points:  # a restart may leave a name without points
            series[tag] = points

    return series


def _summary(folder: Path, series: Series) -> str:
    losses = series.get("cv/loss", [])
    if not losses:
        return "No epoch is complete yet."

    # A run that starts from a trained model has a point before the first step.
    before = [loss for step, loss in losses if step == 0]
    losses = [point for point in losses if point[0] > 0]
    start = f"Before fine-tuning: validation loss {before[0]:.4g}. " if before else ""
    if not losses:
        return f"{start}No epoch is complete yet."

    best = min(range(len(losses)), key=lambda epoch: losses[epoch][1])
    state = "Complete" if (folder / FINAL_WEIGHTS).exists() else "Not complete"
    return (
        f"{start}{state}: {len(losses)} epochs, {losses[-1][0]} optimizer steps. Lowest validation "
        f"loss {losses[best][1]:.4g}, after epoch {best}."
    )


def error_rates(folder: str | Path, unit: str = "error rate") -> Table:
    """Read the error rates, with intervals, of all decode modes that are scored in a run's folder.

    Args:
        unit: heading of the rates, such as WER.
    """
    rows = []
    for path in sorted(Path(folder).glob("**/wer")):
        text = path.read_text(encoding="utf-8")
        totals, interval = RATE.search(text), INTERVAL.search(text)
        if totals:
            rate, *counts = totals.groups()
            mode = str(path.parent.relative_to(folder))
            rows.append([mode, rate, interval[1] if interval else "", *counts])

    head = (
        "decode mode",
        f"{unit}, %",
        f"{LEVEL} % interval",
        "tokens",
        "substituted",
        "deleted",
        "inserted",
    )
    return Table(head, rows)


def _epochs(series: Series) -> Table:
    curves = {tag: dict(series[tag]) for tag in EPOCH if tag in series}
    steps = [step for step, _ in series.get("cv/loss", [])]
    first = BEFORE if 0 in steps else 0
    rows = [
        [str(epoch), str(step), *(_short(points.get(step)) for points in curves.values())]
        for epoch, step in enumerate(steps, first)
    ]
    return Table(("epoch", "step", *curves), rows)


def _account(series: Series) -> Table:
    """Return how many utterances of the last epoch were read, filtered and bad."""
    last = {
        tag.removeprefix("data/"): points[-1][1]
        for tag, points in series.items()
        if tag.startswith("data/")
    }
    return Table(
        ("utterances of the last epoch", ""),
        [[name, _short(count)] for name, count in last.items()],
    )


def _bad_summary(bad: Sequence[Mapping[str, Any]]) -> str:
    """Count bad samples by reason; empty if there are none."""
    reasons = Counter(line["reason"] for line in bad)
    counted = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"Bad samples ({LEDGER}): {counted}. The first:" if bad else ""


def _bad_samples(bad: Sequence[Mapping[str, Any]]) -> Table:
    """Return the first bad samples."""
    names = ("key", "reason", "detail")
    return Table(names, [[line[name] for name in names] for line in bad[:SHOWN_BAD]])


def _environment(folder: Path) -> Table:
    """Tabulate versions, hardware and command of the starts of the run, one column per start."""
    starts = read_starts(folder)
    names = dict.fromkeys(name for start in starts for name in start)
    shown = list(enumerate(starts, 1))
    if len(shown) > SHOWN_STARTS:
        latest = shown[-(SHOWN_STARTS - 1) :]
        shown = [shown[0], *latest]

    head = ("", *(f"start {number} of {len(starts)}" for number, _ in shown))
    return Table(
        head, [[name, *(str(start.get(name, "")) for _, start in shown)] for name in names]
    )


def _short(value: float | None) -> str:
    """Format a count in full and other numbers with four digits."""
    if value is None:
        return ""
    return f"{value:.4g}" if value % 1 else f"{value:.0f}"


def _observed_texts(events: EventAccumulator) -> list[tuple[int, str]]:
    """Return the latest recognised texts, with their step; empty if there are none."""
    tag = "dev/text/text_summary"
    tensors = events.Tensors(tag) if tag in events.Tags()["tensors"] else []
    if not tensors:
        return []

    last: Any = tensors[-1]
    return [(last.step, last.tensor_proto.string_val[0].decode().replace("\n\n", "\n"))]


def _observed_pictures(events: EventAccumulator) -> list[tuple[str, str]]:
    """Return the latest picture of each tag, with the tag."""
    pictures = {tag: events.Images(tag) for tag in events.Tags()["images"]}
    return [
        (tag, data_uri(images[-1].encoded_image_string, "image/png"))
        for tag, images in pictures.items()
        if images
    ]


def _curves(series: Mapping[str, Any]) -> bytes:
    """Draw all curves that have points, as PNG."""
    plots = [(title, [tag for tag in tags if series.get(tag)]) for title, tags in CURVES]
    plots = [(title, tags) for title, tags in plots if tags]
    rows = max(1, (len(plots) + 1) // 2)
    figure = figure_of(13, 2.8 * rows, rows, 2)

    for number, (title, tags) in enumerate(plots, 1):
        axes = figure.add_subplot(rows, 2, number, xlabel="step")
        axes.set_title(title, y=1.0)  # without y, matplotlib draws all labels twice to find a place
        axes.locator_params(nbins=6)
        for tag in tags:
            points = series[tag][:: 1 + len(series[tag]) // SHOWN_POINTS]
            axes.plot(*zip(*points, strict=True), ".-", markersize=3, linewidth=1, label=tag)

        axes.legend()

    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=90)
    return picture.getvalue()
