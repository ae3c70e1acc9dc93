"""The report of a check as text and as an HTML page with histograms and players."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from wenet_uio.audio.encoding import encode_audio
from wenet_uio.crashes import careful
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.types import SampleRef, SkipSample
from wenet_uio.diagnose.findings import LOSSES, SUSPECTS, Finding, Report
from wenet_uio.diagnose.histogram import LogHistogram
from wenet_uio.files import written_aside
from wenet_uio.messages import listed
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
    findings = _by_kind(report)
    for title, kinds in (("training would lose", LOSSES), ("suspect", SUSPECTS)):
        for kind, meaning in kinds.items():
            count = report.counts[kind]
            if not count:
                continue

            lines.append(f"{title}: {count} {kind}: {meaning}")
            lines += [f"    {finding.key}: {finding.detail}" for finding in findings[kind][:NAMED]]
            if count > NAMED:
                lines.append(f"    and {count - NAMED} more")

    lines.append(f"training would lose {report.losses or 'nothing'}")
    return "\n".join(lines)


def _figures(report: Report) -> Iterator[str]:
    """Yield lines on the corpus as a whole."""
    yield f"{report.utterances} utterances, {report.hours:.2f} h"
    for name, histogram, unit in _distributions(report):
        summary = histogram.summary()
        if summary:
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
        units = [repr(unit) for unit in report.unseen]
        yield f"units that occur in no text: {listed(units, NAMED, ' ')}"


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
    # Audio that crashed a worker is among the findings, and is decoded once more for its player.
    with careful(), written_aside(path, "w") as file:
        file.writelines(page)


def _sections(report: Report, reader: BatchReader) -> Iterator[_Section]:
    """Yield the sections of the page; their audio is read while the page is written."""
    findings = _by_kind(report)
    for kind, meaning in {**LOSSES, **SUSPECTS}.items():
        if report.counts[kind]:
            rows = _rows(findings[kind][:SHOWN], reader)
            yield _Section(kind, meaning, report.counts[kind], kind in LOSSES, rows)


def _rows(findings: list[Finding], reader: BatchReader) -> Iterator[_Row]:
    for number, finding in enumerate(findings):
        sound, text = _sample(finding, reader) if number < PLAYED else (None, "")
        yield _Row(finding.key, finding.detail, sound, text)


def _sample(finding: Finding, reader: BatchReader) -> tuple[str | None, str]:
    """Return the beginning of the audio of a sample as a data URI, and its text.

    (None, "") for an unreadable sample.
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
    wav = encode_audio(waveform[:, None], example.sample_rate, "wav")
    return data_uri(wav, "audio/wav"), example.text


def _histograms(report: Report) -> bytes:
    """Draw the distributions, as PNG."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(13, 3.6))
    # A layout that is computed takes as long as the drawing
    figure.subplots_adjust(0.065, 0.15, 0.99, 0.91, 0.25)
    panels = zip(figure.subplots(1, 3), _distributions(report), strict=True)
    for axes, (name, histogram, unit) in panels:
        axes.set(title=name.capitalize(), xlabel=unit, ylabel="utterances")
        if histogram.counts.any():
            bins = histogram.counts.nonzero()[0][-1] + 1  # the rest is empty
            axes.stairs(histogram.counts[:bins], histogram.edges()[: bins + 1], fill=True)
            axes.set(xscale="log", xlim=(histogram.quantile(0) / 1.2, histogram.quantile(1) * 1.2))

    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def _distributions(report: Report) -> tuple[tuple[str, LogHistogram, str], ...]:
    """Return name, histogram and unit of each distribution."""
    return (
        ("duration", report.seconds, "s"),
        ("speech", report.speech, "characters/s"),
        ("level", report.level, "of full scale"),
    )


def _by_kind(report: Report) -> dict[str, list[Finding]]:
    by_kind: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        by_kind[finding.kind].append(finding)

    return by_kind
