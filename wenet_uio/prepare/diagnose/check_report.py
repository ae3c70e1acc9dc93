"""The report of a check as text and as an HTML page with histograms and players."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import soundfile
from markupsafe import Markup

from wenet_uio.audio.encoding import MP3_RATES, encode_audio
from wenet_uio.base.crashes import careful
from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import listed
from wenet_uio.base.pages import data_uri, render
from wenet_uio.base.pages.charts import bar_chart
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.types import SampleRef, SkipSample
from wenet_uio.prepare.diagnose.findings import (
    BINS,
    KEPT,
    LOSSES,
    SUSPECTS,
    Finding,
    LogHistogram,
    Report,
)

NAMED = 10
"""The text names this many findings of each kind, and this many units."""
FIRST = 10
"""The page shows this many findings of each kind; more are folded up."""
SHOWN = 30
"""The page has this many findings of each kind in all, with players."""
BARS = 60
"""A histogram of the page has about this many bars at most."""
SECONDS_PLAYED = 10
"""A player holds this much audio at most."""


def as_text(report: Report) -> str:
    """Return the report in lines: figures, then what training would lose, then what is suspect."""
    lines = [*_figure_lines(report), *_unit_lines(report)]
    findings = _findings_by_kind(report)
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


def _figure_lines(report: Report) -> Iterator[str]:
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


def _unit_lines(report: Report) -> Iterator[str]:
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
    first_rows: Iterator[_Row]
    more_rows: Iterator[_Row]
    more: int
    """Number of `more_rows`, which are folded up."""
    left_out: int
    """Findings that the page does not name."""


def write_html(path: str, report: Report, reader: BatchReader, title: str) -> None:
    """Write the page. `reader` reads the audio of the players; it has an empty chain."""
    _, *notes = _figure_lines(report)
    page = render(
        "check",
        title=title,
        utterances=report.utterances,
        hours=report.hours,
        losses=report.losses,
        suspects=sum(report.counts[kind] for kind in SUSPECTS),
        notes=[*notes, *_unit_lines(report)],
        charts=[_distribution_chart(*distribution) for distribution in _distributions(report)],
        sections=_page_sections(report, reader),
        kept=KEPT,
        seconds=SECONDS_PLAYED,
        text=as_text(report),
    )
    # Audio that crashed a worker is among the findings, and is decoded once more for its player.
    with careful(), written_aside(path, "w") as file:
        file.writelines(page)


def _page_sections(report: Report, reader: BatchReader) -> Iterator[_Section]:
    """Yield the sections of the page; their audio is read while the page is written."""
    findings = _findings_by_kind(report)
    for kind, meaning in (LOSSES | SUSPECTS).items():
        count = report.counts[kind]
        if not count:
            continue

        shown = findings[kind][:SHOWN]
        yield _Section(
            kind=kind,
            meaning=meaning,
            count=count,
            is_loss=kind in LOSSES,
            first_rows=_finding_rows(shown[:FIRST], reader),
            more_rows=_finding_rows(shown[FIRST:], reader),
            more=len(shown[FIRST:]),
            left_out=count - len(shown),
        )


def _finding_rows(findings: list[Finding], reader: BatchReader) -> Iterator[_Row]:
    for finding in findings:
        sound, text = _read_sample(finding, reader)
        yield _Row(finding.key, finding.detail, sound, text)


def _read_sample(finding: Finding, reader: BatchReader) -> tuple[str | None, str]:
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

    if example.waveform is None or not len(example.waveform):
        return None, example.text

    waveform = example.waveform[: SECONDS_PLAYED * example.sample_rate].numpy()
    return _encode_player(waveform, example.sample_rate), example.text


def _encode_player(waveform: np.ndarray, sample_rate: int) -> str:
    """Encode samples (samples,) as a data URI of MP3, or of FLAC where MP3 has no such rate."""
    has_mp3 = sample_rate in MP3_RATES and soundfile.check_format("MP3")
    encoding = "mp3" if has_mp3 else "flac"
    encoded = encode_audio(waveform[:, None], sample_rate, encoding)
    return data_uri(encoded, "audio/mpeg" if has_mp3 else "audio/flac")


def _distribution_chart(name: str, histogram: LogHistogram, unit: str) -> Markup:
    """Draw a distribution between its smallest and its largest value. Zeros, which have no place on
    a logarithmic axis, are counted in the title.
    """
    zeros = int(histogram.counts[0])  # the lowest bin
    title = f"{name.capitalize()}, without {zeros} of 0" if zeros else name.capitalize()
    filled = histogram.counts[1:].nonzero()[0] + 1  # numbers of the other bins with values
    if not len(filled):
        return bar_chart(title, unit, [], [])

    # Several bins are joined to a bar, so that few values are not drawn as single lines.
    first, end = int(filled[0]), int(filled[-1]) + 1
    bins_per_bar = max(4, math.ceil((end - first) / BARS))
    starts = np.arange(first, end, bins_per_bar)
    counts = np.add.reduceat(histogram.counts[:end], starts)
    ends = np.minimum([*starts, starts[-1] + bins_per_bar], BINS)
    edges = histogram.edges()[ends]
    return bar_chart(title, unit, edges.tolist(), counts.tolist(), is_log=True)


def _distributions(report: Report) -> tuple[tuple[str, LogHistogram, str], ...]:
    """Return name, histogram and unit of each distribution."""
    return (
        ("duration", report.seconds, "s"),
        ("speech", report.speech, "characters/s"),
        ("level", report.level, "of full scale"),
    )


def _findings_by_kind(report: Report) -> dict[str, list[Finding]]:
    by_kind: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        by_kind[finding.kind].append(finding)

    return by_kind
