"""Tabulate and plot an ablation: error rates of several configs, each with several seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from markupsafe import Markup

from wenet_uio.addons.publish.model_card import untrained_model
from wenet_uio.base.files import written_aside
from wenet_uio.base.pages import render
from wenet_uio.base.pages.charts import line_chart
from wenet_uio.base.run_files import TRAIN_CONFIG
from wenet_uio.config import load_config
from wenet_uio.config.trust import Trust
from wenet_uio.scoring.bootstrap import LEVEL, compare, interval
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.wer import Counts
from wenet_uio.scoring.words import Unit, WordRules
from wenet_uio.text.table import read_table

RESAMPLES = 1000
UNITS: tuple[Unit, ...] = ("char", "word")
AVERAGES = (("", "."), (", running average", "running"))
"""Suffix of the name of a row, and the folder of its results in that of the run."""
RATE = {"char": "CER", "word": "WER"}

Errors = dict[str, Counts]
"""Key -> counts of an utterance."""


@dataclass
class Line:
    """A row of the ablation in one decode mode."""

    row: str
    mode: str
    parameters: int
    epochs: float
    """Mean over the seeds."""
    cpu_minutes: float
    """CPU time of training, mean over the seeds."""
    errors: dict[tuple[str, Unit], dict[str, Errors]] = field(default_factory=dict)
    """(part, unit) -> seed -> errors."""


@dataclass(frozen=True)
class Part:
    """A part of data/ that is scored."""

    name: str
    references: dict[str, str]
    groups: dict[str, list[str]]
    """Language -> keys; empty without utt2lang, or with one language."""

    @classmethod
    def read(cls, name: str) -> Part:
        """Read data/NAME."""
        folder = Path("data") / name
        groups: dict[str, list[str]] = {}
        if (folder / "utt2lang").exists():
            for key, language in read_table(folder / "utt2lang").items():
                groups.setdefault(language, []).append(key)
        if len(groups) == 1:
            groups = {}

        return cls(name, read_table(folder / "text"), groups)


def write_table(
    folder: str | Path, rows: Sequence[str], names: Sequence[str], *, trust_code: Trust = False
) -> Path:
    """Write table.md, table.json and table.html of the runs FOLDER/ROW/seed_N.

    Returns:
        the path of table.md.

    Args:
        rows: in the order of the table; the others are compared with the first. A row without
            result is left out.
        names: parts of data/ that are scored.
        trust_code: which encoder and model of other packages may run.
    """
    folder, parts = Path(folder), [Part.read(name) for name in names]
    lines: list[Line] = []
    for row in rows:
        lines += _row_lines(folder / row, parts, trust_code)

    tables = [_markdown_table(lines, parts, unit) for unit in UNITS]
    with written_aside(folder / "table.json", "w") as file:
        json.dump([_line_record(line, parts) for line in lines], file, indent=1, ensure_ascii=False)
    with written_aside(folder / "table.html", "w") as file:
        title = folder.resolve().name
        file.writelines(render("ablation", title=title, chart=_rate_chart(lines, parts[0])))

    path = folder / "table.md"
    with written_aside(path, "w") as file:
        file.write("\n".join(tables))

    return path


def _row_lines(row_folder: Path, parts: Sequence[Part], trust_code: Trust) -> list[Line]:
    """Return a line for each decode mode of a row, with the seeds whose parts are all scored.

    The decoded texts are in ROW/seed_N/PART/MODE/text, and those of the running average in
    ROW/seed_N/running/PART/MODE/text.
    """
    runs = _scored_runs(row_folder, parts)
    if not runs:
        return []

    config = load_config(runs[0] / TRAIN_CONFIG, of_model=True, trust_code=trust_code)
    model = untrained_model(config)
    parameters = sum(weight.numel() for weight in model.parameters())
    epoch_files = [path for run in runs for path in run.glob("epoch_*.yaml")]
    epochs = len(epoch_files) / len(runs)
    # Each start of a run has a line with its seconds.
    seconds: list[float] = []
    for run in runs:
        seconds += map(float, (run / "cpu_seconds").read_text().split())
    minutes = sum(seconds) / len(runs) / 60
    lines: dict[tuple[str, str], Line] = {}

    for (suffix, subfolder), run, part in product(AVERAGES, runs, parts):
        for text_file in sorted((run / subfolder / part.name).glob("*/text")):
            name, mode = row_folder.name + suffix, text_file.parent.name
            line = lines.setdefault((name, mode), Line(name, mode, parameters, epochs, minutes))
            for unit in UNITS:
                scores = score(part.references, read_table(text_file), WordRules(unit))
                errors = {key: Counts.of(pairs) for key, pairs in scores.utterances.items()}
                line.errors.setdefault((part.name, unit), {})[run.name] = errors

    return list(lines.values())


def _scored_runs(row_folder: Path, parts: Sequence[Part]) -> list[Path]:
    """Return the folders ROW/seed_N that have a file ROW/seed_N/PART/scored for every part."""
    runs_by_part: list[set[Path]] = []
    for part in parts:
        scored = row_folder.glob(f"seed_*/{part.name}/scored")
        runs_by_part.append({path.parents[1] for path in scored})

    return sorted(set.intersection(*runs_by_part))


def _summed_counts(seeds: Iterable[Errors], keys: Iterable[str]) -> list[Counts]:
    """Return the counts of each utterance, added over the seeds."""
    seeds = list(seeds)  # it is passed once for each key
    counts: list[Counts] = []
    for key in keys:
        counts.append(sum((errors[key] for errors in seeds), Counts()))
    return counts


def _error_rates(line: Line, part: Part, unit: Unit) -> dict[str, tuple[float, float, float]]:
    """Return the rate and the ends of its interval in percent, for `all` and each language."""
    seeds = line.errors[part.name, unit].values()
    rates = {}
    groups = {"all": list(part.references), **part.groups}
    for group, keys in groups.items():
        counts = _summed_counts(seeds, keys)
        rate = sum(counts, Counts()).rate
        low, high = interval(counts, RESAMPLES) or (rate, rate)
        rates[group] = (rate, low, high)

    return rates


def _difference_text(line: Line, base: Line, part: Part, unit: Unit) -> str:
    """Format the relative difference to the first row, with its p-value.

    Both are over the seeds that the rows have in common; without such a seed the text is empty.
    """
    errors, base_errors = line.errors[part.name, unit], base.errors[part.name, unit]
    common_seeds = sorted(errors.keys() & base_errors.keys())
    if line is base or not common_seeds:
        return ""

    base_counts = _summed_counts((base_errors[seed] for seed in common_seeds), part.references)
    counts = _summed_counts((errors[seed] for seed in common_seeds), part.references)
    base_rate = sum(base_counts, Counts()).rate
    comparison = compare(base_counts, counts, RESAMPLES)
    if not base_rate or comparison is None:
        return ""

    return f"{100 * comparison.difference / base_rate:+.1f} %, p {comparison.p:.3f}"


def _compared_line(line: Line, lines: Sequence[Line]) -> Line:
    """Return the line of the first row with which `line` is compared.

    This is the line in the same decode mode, or the first one if that mode is missing.
    """
    candidates = [candidate for candidate in lines if candidate.row == lines[0].row]
    same_mode = [candidate for candidate in candidates if candidate.mode == line.mode]
    return (same_mode or candidates)[0]


def _markdown_table(lines: Sequence[Line], parts: Sequence[Part], unit: Unit) -> str:
    """Format the lines as a table in Markdown, with the rates in `unit`."""
    title = f"{RATE[unit]}, % ({LEVEL} % interval)"
    head = [title, "decode mode", "M parameters", "epochs", "CPU min", "seeds"]
    for part in parts:
        head.append(part.name)
        head += [f"{part.name} {group}" for group in part.groups]
        head.append(f"{part.name} against the first row")

    table = [head, ["---"] * len(head)]
    for line in lines:
        numbers = [f"{line.parameters / 1e6:.2f}", f"{line.epochs:g}", f"{line.cpu_minutes:.1f}"]
        cells = [line.row, line.mode, *numbers, str(len(line.errors[parts[0].name, unit]))]
        for part in parts:
            rates = _error_rates(line, part, unit).values()
            cells += [f"{rate:.2f} ({low:.2f}–{high:.2f})" for rate, low, high in rates]
            cells.append(_difference_text(line, _compared_line(line, lines), part, unit))

        table.append(cells)

    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def _line_record(line: Line, parts: Sequence[Part]) -> Mapping[str, Any]:
    """Return a line as a record of table.json; `rates` are over all seeds, `seeds` are of each."""
    numbers = {
        "parameters": line.parameters,
        "epochs": line.epochs,
        "cpu_minutes": round(line.cpu_minutes, 2),
    }
    rates: dict[str, dict[str, Any]] = {}
    for part in parts:
        rates[part.name] = {RATE[unit]: _error_rates(line, part, unit) for unit in UNITS}

    seeds: dict[str, dict[str, float]] = {}
    for seed, unit in product(line.errors[parts[0].name, "char"], UNITS):
        errors = line.errors[parts[0].name, unit][seed]
        seeds.setdefault(seed, {})[RATE[unit]] = sum(errors.values(), Counts()).rate

    return {"row": line.row, "mode": line.mode, **numbers, "rates": rates, "seeds": seeds}


def _rate_chart(lines: Sequence[Line], part: Part) -> Markup:
    """Draw the character error rate of each row's best mode over CPU time of training: its interval
    is a vertical line, with the rate between the ends.
    """
    best_rates: dict[str, float] = {}
    bars: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        rate, low, high = _error_rates(line, part, "char")["all"]
        if line.row not in bars or rate < best_rates[line.row]:
            best_rates[line.row] = rate
            bars[line.row] = [(line.cpu_minutes, value) for value in (low, rate, high)]

    title = f"CER of {part.name}, % ({LEVEL} % interval)"
    return line_chart(title, "CPU minutes of training", bars)
