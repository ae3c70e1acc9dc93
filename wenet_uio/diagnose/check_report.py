"""The report of a check as text and as an HTML page, which stands alone: pictures and sounds are in it."""

from __future__ import annotations

import base64
import html
import io
from collections import defaultdict
from functools import partial

from wenet_uio.audio.encoding import encode_audio
from wenet_uio.cli import listed
from wenet_uio.dataset.dataset import BatchReader
from wenet_uio.dataset.types import SampleRef, SkipSample
from wenet_uio.diagnose.check import LOSSES, SUSPECTS, Report
from wenet_uio.diagnose.check_samples import Finding
from wenet_uio.diagnose.histogram import LogHistogram
from wenet_uio.files import written_aside

NAMED = 10
"""Findings of a kind, and units, that the text names."""
SHOWN, PLAYED = 100, 5
"""Findings of a kind that the page names, and those with a player."""
SECONDS_PLAYED = 10
PAGE = """<!doctype html>
<meta charset="utf-8"><title>{title}</title>
<style>
body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto }} td, th {{ text-align: left; padding: 0 1em 0 0 }}
table {{ border-collapse: collapse }} tr {{ border-bottom: 1px solid #ddd }} audio {{ height: 2em }}
.loss {{ color: #b00 }} td {{ overflow-wrap: anywhere }} img {{ max-width: 100% }}
</style>
<h1>{title}</h1>
{body}
"""


def as_text(report: Report) -> str:
    """Figures first, then what training would lose, then what is suspect."""
    lines = [f"{report.utterances} utterances, {report.hours:.2f} h"]
    for name, histogram, unit in _distributions(report):
        if summary := histogram.summary():
            low, *_, high = summary.values()
            lines.append(f"{name}: median {summary['0.5']:g} {unit}, 1 % below {low:g}, 1 % above {high:g}")
    if report.rates:
        rates = ", ".join(f"{count} at {rate} Hz" for rate, count in report.rates.most_common())
        lines.append(f"sample rates: {rates}")
    if report.filtered:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(report.filtered.items()))
        lines.append(f"left out by filter_conf: {reasons}")
    if report.unknown:
        unknown = [f"{token!r} ({count})" for token, count in report.unknown.most_common()]
        lines.append(f"tokens that are no unit: {listed(unknown, NAMED, ' ')}")
    if report.unseen:
        lines.append(f"units in no text: {listed([repr(unit) for unit in report.unseen], NAMED, ' ')}")
    named = _by_kind(report)
    for title, kinds in (("training would lose", LOSSES), ("suspect", SUSPECTS)):
        for kind, meaning in kinds.items():
            if report.counts[kind]:
                lines.append(f"{title}: {report.counts[kind]} {kind}: {meaning}")
                lines += [f"    {finding.key}: {finding.detail}" for finding in named[kind][:NAMED]]
                if (more := report.counts[kind] - NAMED) > 0:
                    lines.append(f"    and {more} more")
    lines.append(f"training would lose {report.losses}" if report.losses else "training would lose nothing")
    return "\n".join(lines)


def write_html(path: str, report: Report, reader: BatchReader, title: str) -> None:
    """Write the page; `reader` fetches the audio of what it lets hear."""
    picture = base64.b64encode(_picture(report)).decode()
    body = [f'<pre>{html.escape(as_text(report))}</pre><img alt="" src="data:image/png;base64,{picture}">']
    named = _by_kind(report)
    for kind, meaning in {**LOSSES, **SUSPECTS}.items():
        if not report.counts[kind]:
            continue
        style = ' class="loss"' if kind in LOSSES else ""
        body.append(f"<h2{style}>{report.counts[kind]} {kind}</h2><p>{html.escape(meaning)}</p><table>")
        for number, finding in enumerate(named[kind][:SHOWN]):
            player = _player(finding, reader) if number < PLAYED else ""
            body.append(f"<tr><th>{html.escape(finding.key)}<td>{html.escape(finding.detail)}<td>{player}")
        body.append("</table>")
    with written_aside(path, "w") as file:
        file.write(PAGE.format(title=html.escape(title), body="\n".join(body)))


def _player(finding: Finding, reader: BatchReader) -> str:
    """What a sample sounds like, as far as it can be read."""
    if finding.place is None:
        return ""
    try:
        ref = SampleRef(*finding.place)
        example = reader.example(ref, 0, partial(reader.corpus.read, ref))
    except SkipSample:
        return ""
    if example.waveform is None:
        return html.escape(example.text)
    waveform = example.waveform[: SECONDS_PLAYED * example.sample_rate].numpy()
    wav = base64.b64encode(encode_audio(waveform[:, None], example.sample_rate, "wav")).decode()
    text = f"<br>{html.escape(example.text)}"
    return f'<audio controls preload="none" src="data:audio/wav;base64,{wav}"></audio>{text}'


def _picture(report: Report) -> bytes:
    """Histograms, as PNG."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(13, 3.6), layout="constrained")
    for axes, (name, histogram, unit) in zip(figure.subplots(1, 3), _distributions(report), strict=True):
        axes.set(title=name.capitalize(), xlabel=unit, ylabel="utterances")
        if histogram.counts.any():
            used = histogram.counts.nonzero()[0]
            axes.stairs(histogram.counts[: used[-1] + 1], histogram.edges()[: used[-1] + 2], fill=True)
            axes.set(xscale="log", xlim=(histogram.quantile(0) / 1.2, histogram.quantile(1) * 1.2))
    figure.savefig(file := io.BytesIO(), format="png", dpi=110)
    return file.getvalue()


def _distributions(report: Report) -> tuple[tuple[str, LogHistogram, str], ...]:
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
