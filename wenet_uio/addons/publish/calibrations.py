"""How far the confidences of a run are to be trusted, measured on the first utterances of dev."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.addons.publish.error_rates import Table
from wenet_uio.scoring.calibration import calibration, judge_words, read_confidences
from wenet_uio.scoring.words import WordRules
from wenet_uio.text.table import read_table

CALIBRATION = "calibration"
"""Folder of the first utterances of dev: their references `text`, and results of each mode."""


def calibrations(folder: str | Path) -> Table:
    """Compare the confidences of words with how often these are right, for all decode modes with
    confidences on the first utterances of dev.
    """
    rows: list[list[str]] = []
    for path in sorted(Path(folder).glob(f"**/{CALIBRATION}/*/nbest.jsonl")):
        sample = path.parents[1]
        judged = judge_words(
            read_table(sample / "text"), read_confidences(path), WordRules(unit="auto")
        )
        measured = calibration(judged)
        if measured is not None:
            mode = str(sample.parent.relative_to(folder) / path.parent.name)
            figures = (measured.confidence, measured.right, measured.error)
            rows.append([mode, str(measured.words), *(f"{figure:.1f}" for figure in figures)])

    head = ("decode mode", "words of dev", "mean confidence, %", "right, %", "calibration error, %")
    return Table(head, rows)
