"""Error rates of a run: of each decode mode, and before and after a fine-tuning, with the part of the
change that is writing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wenet_uio.base.run_files import SHARES_SUFFIX
from wenet_uio.base.uris import published
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.scoring.bootstrap import LEVEL

DECODED_BEFORE = "before"
"""Folder in that of a run: results of the model that the run started from."""
RATE = re.compile(r"^Overall -> ([0-9.]+|n/a) % N=(\d+) C=\d+ S=(\d+) D=(\d+) I=(\d+)$", re.M)
"""The line of totals that compute-wer.py writes."""
MEASURE = re.compile(r"^Counted -> .+ \((\w+)\)$", re.M)
"""The line that names the error rate: WER, CER or MER."""
INTERVAL = re.compile(rf"^{LEVEL} % interval -> ([0-9.]+ to [0-9.]+) %", re.M)
"""The line of the interval that compute-wer.py writes, except with `--bootstrap 0`."""
NORMALISED = "wer_normalized"
"""File beside that of the error rate: the same of normalised texts."""
SHARE = f"avg{SHARES_SUFFIX}"
"""File in the folder of a run: the share of the fine-tuning in avg.pt."""


class Table(NamedTuple):
    """A table of the page."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Change:
    """Error rates in a decode mode before and after fine-tuning, in percent."""

    name: str
    """The decode mode; with several test sets, test set and decode mode."""
    written: tuple[float, float]
    """Of the texts as they are written: before, after."""
    normalised: tuple[float, float] | None
    """Without case, punctuation and other ways of writing: before, after; None if it was not scored."""

    @property
    def points(self) -> float:
        """Points by which the error rate as written is higher than before."""
        return self.written[1] - self.written[0]

    @property
    def hearing(self) -> float | None:
        """Points of these that are other words."""
        return self.normalised and self.normalised[1] - self.normalised[0]

    @property
    def writing(self) -> float | None:
        """Points of these that are the same words with other case, marks or digits."""
        return None if self.hearing is None else self.points - self.hearing

    def __str__(self) -> str:
        """Say all figures in a line."""
        before, after = map(_percent, self.written)
        line = f"{self.name}: as written {before} % before fine-tuning, {after} % after"
        if self.normalised is None:
            return line

        before, after = map(_percent, self.normalised)
        parts = f"writing is {_signed(self.writing)} and hearing {_signed(self.hearing)}"
        return (
            f"{line}; normalised {before} % before, {after} % after; of {_signed(self.points)} points, "
            f"{parts}"
        )

    def warnings(self) -> list[str]:
        """Return a line for each of the two rates that is higher than before."""
        lines: list[str] = []
        for kind, rates in (("", self.written), ("normalised ", self.normalised)):
            if rates and rates[1] > rates[0]:
                lines.append(
                    f"{self.name}: {kind}error rate {_percent(rates[1])} %, before fine-tuning "
                    f"{_percent(rates[0])} %"
                )
        return lines


def error_rates(folder: str | Path) -> Table:
    """Read the error rates of all decode modes that are scored in a run's folder, with intervals,
    and with the rates of normalised texts if there are any.
    """
    rows: list[list[str]] = []
    normalised: list[str] = []
    for path in sorted(Path(folder).glob("**/wer")):
        text = path.read_text(encoding="utf-8")
        totals, interval = RATE.search(text), INTERVAL.search(text)
        if totals:
            mode = str(path.parent.relative_to(folder))
            rows.append([mode, *totals.groups()])
            rows[-1].insert(2, interval[1] if interval else "")
            normalised.append(_rate_text(path.with_name(NORMALISED)))

    name = measure(folder) or "error rate"
    head = [
        *("decode mode", f"{name}, %", f"{LEVEL} % interval"),
        *("tokens", "substituted", "deleted", "inserted"),
    ]
    if any(normalised):
        head.insert(3, f"{name} of normalised texts, %")
        for row, rate in zip(rows, normalised, strict=True):
            row.insert(3, rate)

    return Table(head, rows)


def measure(folder: str | Path) -> str | None:
    """Return what the error rates of a run are: WER, CER or MER; None if no mode is scored, or if
    they differ.
    """
    found: set[str] = set()
    for path in Path(folder).glob("**/wer"):
        found.update(MEASURE.findall(path.read_text(encoding="utf-8")))
    return found.pop() if len(found) == 1 else None


def read_changes(folder: str | Path) -> list[Change]:
    """Read the error rates of a run that were measured before fine-tuning, too."""
    folder = Path(folder)
    changes: list[Change] = []
    for path in sorted(folder.glob("**/wer")):
        name = path.parent.relative_to(folder)
        before = folder / DECODED_BEFORE / name
        written = _both_rates(before / "wer", path)
        normalised = _both_rates(before / NORMALISED, path.with_name(NORMALISED))
        if written:
            changes.append(Change(str(name), written, normalised))

    return changes


def table_of_changes(folder: str | Path) -> Table:
    """Tabulate the error rates before and after fine-tuning; no rows without any."""
    head = (
        *("decode mode", "as written: before, %", "after, %"),
        *("normalised: before, %", "after, %", "change, points", "of it writing", "of it hearing"),
    )
    rows: list[list[str]] = []
    for change in read_changes(folder):
        rates = [*change.written, *(change.normalised or (None, None))]
        points = (change.points, change.writing, change.hearing)
        rows.append([change.name, *map(_percent, rates), *map(_signed, points)])

    return Table(head, rows)


def describe_share(folder: str | Path) -> str:
    """Say which share of the fine-tuning avg.pt has; empty if no share was chosen."""
    path = Path(folder, SHARE)
    record: Any = read_yaml(path) if path.exists() else None
    try:
        compared = record["compared"]
        return (
            f"{100 * record['share']:.0f} % of the fine-tuning, chosen on {compared['utterances']} of "
            f"{compared['of']} utterances of {published(compared['list'])}"
        )
    except (KeyError, TypeError, ValueError):  # none, or not written by average_model.py
        return ""


def _both_rates(before: Path, after: Path) -> tuple[float, float] | None:
    """Read the error rates of two files in percent; None if one of them has none."""
    texts = _rate_text(before), _rate_text(after)
    if "" in texts:
        return None
    first, second = (math.inf if text == "n/a" else float(text) for text in texts)
    return first, second


def _percent(rate: float | None) -> str:
    """Write an error rate as in the files; empty if there is none."""
    if rate is None:
        return ""
    return f"{rate:.2f}" if math.isfinite(rate) else "n/a"


def _signed(points: float | None) -> str:
    """Write a change of an error rate; empty if there is none."""
    if points is None:
        return ""
    return f"{points:+.2f}" if math.isfinite(points) else "n/a"


def _rate_text(path: Path) -> str:
    """Read the error rate of a file as it is written; empty if there is none."""
    totals = RATE.search(path.read_text(encoding="utf-8")) if path.exists() else None
    return totals[1] if totals else ""
