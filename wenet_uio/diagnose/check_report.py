"""The report of a check as text and as an HTML page with histograms and players."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from wenet_uio.audio.encoding import encode_audio
from wenet_uio.cli import listed
from wenet_uio.crashes import careful
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.types import SampleRef, SkipSample
from wenet_uio.diagnose.findings import LOSSES, SUSPECTS, Finding, Report
from wenet_uio.diagnose.histogram import LogHistogram
from wenet_uio.files import written_aside
from wenet_uio.pages import data_uri, render

NAMED = 10
"""The text names this many findings of each kind, and this many units."""
SHOWN = 100
"""The page names this many findings of each kind."""
PLAYED = 5
"""The page has players for this many findings of each kind."""
SECONDS_PLAYED = 10
"""A player holds this much audio at most."""


def as_text(report: Report) -> str:
    """Return the report in lines: figures, then what training would lose, then what is suspect."""
    lines = [*_figures(report), *_units(report)]
    named = _by_kind(report)
    for title, kinds in (("training would lose", LOSSES), ("suspect", SUSPECTS)):
        for kind, meaning in kinds.items():
            if report.counts[kind]:
                lines.append(f"{title}: {report.counts[kind]} {kind}: {meaning}")
                lines += [f"    {finding.key}: {finding.detail}" for finding in named[kind][:NAMED]]
                if (more := report.counts[kind] - NAMED) > 0:
                    lines.append(f"    and {more} more")

    lines.append(
        f"training would lose {report.losses}" if report.losses else "training would lose nothing"
    )
    return "\n".join(lines)


def _figures(report: Report) -> Iterator[str]:
    """Yield lines on the corpus as a whole."""
    yield f"{report.utterances} utterances, {report.hours:.2f} h"
    for name, histogram, unit in _distributions(report):
        if summary := histogram.summary():
            low, *_, high = summary.values()
            yield f"{name}: median {summary['0.5']:g} {unit}, 1 % below {low:g}, 1 % above {high:g}"

    if report.rates:
        rates = ", ".join(f"{count} at {rate} Hz" for rate, count in report.rates.most_common())
        yield f"sample rates: {rates}"

    if report.filtered:
        reasons = ", ".join(
            f"{count} {reason}" for reason, count in sorted(report.filtered.items())
        )
        yield f"left out by filter_conf: {reasons}"


def _units(report: Report) -> Iterator[str]:
    """Yield lines on tokens and units."""
    if report.unknown:
        tokens = [f"{token!r} ({count})" for token, count in report.unknown.most_common()]
        yield f"tokens that are not in the units file: {listed(tokens, NAMED, ' ')}"
    if report.unseen:
        yield f"units that occur in no text: {listed([repr(unit) for unit in report.unseen], NAMED, ' ')}"


class _Row(NamedTuple):
    """One finding on the page."""

    key: str
    detail: str
    sound: str | None
    """The beginning of the audio, as a data URI."""
    text: str


class _Section(NamedTuple):
    """All findings of one kind on the page."""

    kind: str
    meaning: str
    count: int
    is_loss: bool
    rows: Iterator[_Row]


def write_html(path: str, report: Report, reader: BatchReader, title: str) -> None:
    """Write the page. `reader` reads the audio of the players; it has an empty chain."""
    page = render(
        "check",
        title=title,
        text=as_text(report),
        histograms=data_uri(_histograms(report), "image/png"),
        sections=_sections(report, reader),
    )
    # Audio that crashed a worker is among the findings
    with (
        careful(),
        written_aside(path, "w") as file,
    ):
        file.writelines(page)


def _sections(report: Report, reader: BatchReader) -> Iterator[_Section]:
    named = _by_kind(report)
    for kind, meaning in {**LOSSES, **SUSPECTS}.items():
        if report.counts[kind]:
            rows = _rows(named[kind][:SHOWN], reader)
            yield _Section(kind, meaning, report.counts[kind], kind in LOSSES, rows)


def _rows(findings: list[Finding], reader: BatchReader) -> Iterator[_Row]:
    for number, finding in enumerate(findings):
        sound, text = _sample(finding, reader) if number < PLAYED else (None, "")
        yield _Row(finding.key, finding.detail, sound, text)


def _sample(finding: Finding, reader: BatchReader) -> tuple[str | None, str]:
    """Return the beginning of the audio of a sample, as a data URI, and the text; (None, "") for an
    unreadable sample.
    """
    if finding.place is None:
        return None, ""

    ref = SampleRef(*finding.place)
    try:
        example = reader.example(ref, 0, partial(reader.corpus.read, ref))
    except SkipSample:
        return None, ""

    if example.waveform is None:
        return None, example.text

    waveform = example.waveform[: SECONDS_PLAYED * example.sample_rate].numpy()
    return data_uri(
        encode_audio(waveform[:, None], example.sample_rate, "wav"), "audio/wav"
    ), example.text


def _histograms(report: Report) -> bytes:
    """Draw the distributions, as PNG."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(13, 3.6))
    # A layout that is computed takes as long as the drawing
    figure.subplots_adjust(0.065, 0.15, 0.99, 0.91, 0.25)
    for axes, (name, histogram, unit) in zip(
        figure.subplots(1, 3), _distributions(report), strict=True
    ):
        axes.set(title=name.capitalize(), xlabel=unit, ylabel="utterances")
        if histogram.counts.any():
            used = histogram.counts.nonzero()[0]
            axes.stairs(
                histogram.counts[: used[-1] + 1], histogram.edges()[: used[-1] + 2], fill=True
            )
            axes.set(xscale="log", xlim=(histogram.quantile(0) / 1.2, histogram.quantile(1) * 1.2))

    figure.savefig(file := io.BytesIO(), format="png", dpi=110)
    return file.getvalue()


def _distributions(report: Report) -> tuple[tuple[str, LogHistogram, str], ...]:
    """Name, histogram and unit of each distribution."""
    return (
        ("duration", report.seconds, "s"),
        ("speech", report.speech, "characters/s"),
        ("level", report.level, "of full scale"),
    )


def _by_kind(report: Report) -> dict[str, list[Finding]]:
    named: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        named[finding.kind].append(finding)
    return named
