"""report.html: one page about a run, with all that it needs inside."""

from __future__ import annotations

import base64
import html
import io
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from wenet_uio.files import read_lines, written_aside
from wenet_uio.train.checkpoint import ENVIRONMENT, LEDGER

if TYPE_CHECKING:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

Series = dict[str, list[tuple[int, float]]]
"""Of each tag of TensorBoard, (step, value)."""

CURVES = (
    ("loss", ("train/loss", "cv/loss")),
    ("CTC loss", ("train/loss_ctc", "cv/loss_ctc")),
    ("attention loss", ("train/loss_att", "cv/loss_att")),
    ("accuracy of the decoder", ("train/th_accuracy", "cv/th_accuracy")),
    ("learning rate", ("train/lr",)),
    ("norm of the gradient", ("train/grad_norm",)),
    ("audio seconds per second", ("train/audio_seconds_per_second",)),
    ("share of time waiting for data, of padding", ("train/data_wait", "train/padding")),
)
EPOCH = ("cv/loss", "cv/loss_ctc", "cv/loss_att", "cv/th_accuracy", "data/read", "data/filtered", "data/bad")
SHOWN_POINTS = 2000
"""Of a curve; more are thinned out."""
SHOWN_BAD = 20
RATE = re.compile(r"^Overall -> ([0-9.]+) % N=(\d+) C=\d+ S=(\d+) D=(\d+) I=(\d+)$", re.M)
STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } td, th { padding: .15em .8em; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } pre { background: #f5f5f5; padding: 1em; overflow-x: auto }
img { max-width: 100% }
"""


def write_run_report(folder: str | Path, tensorboard_dir: str | Path | None = None) -> Path:
    """Write report.html into the folder of a run; its path. `tensorboard_dir` is `tensorboard` in it by default.

    Raises:
        ValueError: there is no run.
    """
    folder = Path(folder)
    config = folder / "train.yaml"
    if not config.exists():
        raise ValueError(f"{folder}: no run here, it has no train.yaml")
    events = _events(Path(tensorboard_dir or folder / "tensorboard"))
    series = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in sorted(events.Tags()["scalars"])}
    parts = [
        f"<h1>{html.escape(folder.resolve().name)}</h1><p>{_summary(folder, series)}</p>",
        "<h2>Results</h2>" + _results(folder),
        "<h2>Curves</h2>" + (_image(_curves(series), "curves") if series else "<p>No points yet.</p>"),
        "<h2>An utterance of the validation set</h2>" + _observed(events),
        "<h2>Epochs</h2>" + _epochs(series),
        "<h2>Data</h2>" + _data(folder, series),
        "<h2>Environment</h2>" + _environment(folder),
        f"<h2>Config</h2><pre>{html.escape(config.read_text(encoding='utf-8'))}</pre>",
    ]
    path = folder / "report.html"
    with written_aside(path, "w") as file:
        file.write(f'<!doctype html>\n<meta charset="utf-8"><title>{html.escape(folder.resolve().name)}</title>\n')
        file.write(f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n")
    return path


def _events(folder: Path) -> EventAccumulator:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # slow to import

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1, "histograms": 1, "tensors": 1})
    logging.getLogger("tensorboard").setLevel(logging.WARNING)  # it says what it reads
    if folder.is_dir():
        events.Reload()
    return events


def _summary(folder: Path, series: Series) -> str:
    losses = series.get("cv/loss", [])
    if not losses:
        return "No epoch is complete yet."
    best = min(range(len(losses)), key=lambda epoch: losses[epoch][1])
    state = "Complete" if (folder / "final.pt").exists() else "Not complete"
    return (
        f"{state}: {len(losses)} epochs, {losses[-1][0]} optimizer steps. Lowest validation loss "
        f"{losses[best][1]:.4g}, after epoch {best}."
    )


def _results(folder: Path) -> str:
    rows = []
    for path in sorted(folder.glob("**/wer")):
        if match := RATE.search(path.read_text(encoding="utf-8")):
            rows.append([str(path.parent.relative_to(folder)), *match.groups()])
    head = ("decode mode", "error rate, %", "tokens", "substituted", "deleted", "inserted")
    return _table(head, rows) if rows else "<p>Nothing is decoded and scored yet.</p>"


def _epochs(series: Series) -> str:
    found = {tag: dict(series[tag]) for tag in EPOCH if tag in series}
    steps = [step for step, _ in series.get("cv/loss", [])]
    rows = [
        [str(epoch), str(step), *(_short(points.get(step)) for points in found.values())]
        for epoch, step in enumerate(steps)
    ]
    return _table(("epoch", "step", *found), rows)


def _data(folder: Path, series: Series) -> str:
    last = {tag.removeprefix("data/"): points[-1][1] for tag, points in series.items() if tag.startswith("data/")}
    account = _table(("utterances of the last epoch", ""), [[name, _short(count)] for name, count in last.items()])
    bad = read_lines(folder / LEDGER)
    if not bad:
        return account + "<p>No bad sample was met.</p>"
    reasons = Counter(line["reason"] for line in bad)
    counted = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    rows = [[line["key"], line["reason"], line["detail"]] for line in bad[:SHOWN_BAD]]
    met = f"<p>Bad samples met ({LEDGER}): {html.escape(counted)}. The first:</p>"
    return account + met + _table(("key", "reason", "detail"), rows)


def _environment(folder: Path) -> str:
    path = folder / ENVIRONMENT
    starts = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []
    names = dict.fromkeys(name for start in starts for name in start)
    shown = starts if len(starts) < 4 else [starts[0], *starts[-2:]]
    head = ("", *(f"start {starts.index(start) + 1} of {len(starts)}" for start in shown))
    return _table(head, [[name, *(str(start.get(name, "")) for start in shown)] for name in names])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<{tag}>{html.escape(cell)}" for cell in row) for tag, row in _tagged(head, rows)]
    return "<table>\n" + "".join(f"<tr>{line}\n" for line in lines) + "</table>"


def _tagged(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    return [("th", head), *(("td", row) for row in rows)]


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if value % 1 else f"{value:.0f}"


def _observed(events: EventAccumulator) -> str:
    """What the model made of it last."""
    tags = events.Tags()
    texts = [events.Tensors(tag)[-1] for tag in tags["tensors"] if tag == "dev/text/text_summary"]
    said = [f"<p>After step {last.step}:</p><pre>{html.escape(_text(last))}</pre>" for last in texts]
    pictures = (
        f"<h3>{html.escape(tag)}</h3>" + _image(events.Images(tag)[-1].encoded_image_string, tag)
        for tag in tags["images"]
    )
    return "\n".join((*said, *pictures)) or "<p>Not looked at yet (observe_interval).</p>"


def _text(point: Any) -> str:
    return point.tensor_proto.string_val[0].decode().replace("\n\n", "\n")


def _image(png: bytes, what: str) -> str:
    return f'<img alt="{html.escape(what)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def _curves(series: Mapping[str, Any]) -> bytes:
    """All curves that there are, as PNG."""
    from matplotlib.figure import Figure  # slow to import; no pyplot, whose state is everyone's

    shown = [(title, [tag for tag in tags if series.get(tag)]) for title, tags in CURVES]
    shown = [(title, tags) for title, tags in shown if tags]
    rows = max(1, (len(shown) + 1) // 2)
    figure = Figure(figsize=(13, 2.8 * rows), layout="constrained")
    for number, (title, tags) in enumerate(shown, 1):
        axes = figure.add_subplot(rows, 2, number, title=title, xlabel="step")
        for tag in tags:
            points = series[tag][:: 1 + len(series[tag]) // SHOWN_POINTS]
            axes.plot(*zip(*points, strict=True), ".-", markersize=3, linewidth=1, label=tag)
        axes.legend()
    figure.savefig(file := io.BytesIO(), format="png", dpi=90)
    return file.getvalue()
