"""Format the results of all loaders as a Markdown table with notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trials import TITLES

Results = Mapping[str, Mapping[str, Any]]
"""Name of a loader -> its results, as run.py writes them."""


def markdown(results: Results) -> str:
    """Return a row for each trial and a column for each loader, versions, and notes.

    Each failure and exclusion has a note.
    """
    names = list(results)
    notes: list[str] = []
    lines = ["| trial | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for trial, title in TITLES.items():
        cells = [_cell(name, results[name], trial, notes) for name in names]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")

    lines += ["", "| loader | versions | date | machine | commit |", "|---|---|---|---|---|"]
    lines += [_provenance(name, results[name]) for name in names]
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
    return "\n".join(lines) + "\n"


def _cell(name: str, results: Mapping[str, Any], trial: str, notes: list[str]) -> str:
    """Return the verdict of a trial; a failure or an exclusion refers to a note, which is added."""
    verdict = results.get("trials", {}).get(trial)
    if verdict is None:
        return "not run"

    result = verdict["result"]
    summary = verdict["summary"].replace("|", "/").replace("\n", " ")
    if result == "measured":
        return summary
    if not summary:
        return result
    if result == "pass":
        return f"pass, {summary}"

    is_excluded = result == "out of scope"
    note = summary if is_excluded else f"{name}, {TITLES[trial]}: {summary[:400]}"
    if note not in notes:  # one reason may put several trials of several loaders out of scope
        notes.append(note)

    return f"{result} ({notes.index(note) + 1})"


def _provenance(name: str, results: Mapping[str, Any]) -> str:
    """Return the row of a loader in the table of versions."""
    if "reason" in results:
        return f"| {name} | not installed: {results['reason']} | {results['date']} | | |"
    versions = ", ".join(f"{package} {version}" for package, version in results["versions"].items())
    return (
        f"| {name} | {versions} | {results['date']} | {results['machine']} | {results['commit']} |"
    )
