"""Recognised text beside its reference as one web page: coloured errors, and the audio to listen to."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Callable
from html import escape
from typing import IO

import numpy as np
import soundfile

from wenet_uio.audio.read import INT16_SCALE
from wenet_uio.scoring.scores import Scores
from wenet_uio.scoring.wer import Counts, Pair

CONFUSIONS = 20
"""Most frequent errors that the page lists."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .1em .9em; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #999 }
article { border-top: 1px solid #ddd; padding: .7em 0 } h2 { font-size: 1em; margin: 0 } audio { height: 2em }
.sub { background: #ffe3b3 } .del { background: #ffc9c9 } .ins { background: #c5e0ff }
.sub del, .del { text-decoration: line-through } ins { text-decoration: none; font-weight: 600 }
"""

Audio = Callable[[str], tuple[np.ndarray, int] | None]
"""Key to waveform (samples,) on the scale of int16 and its rate in Hz; None where there is none."""


def write_html(scores: Scores, file: IO[str], *, title: str, utterances: int, audio: Audio | None = None) -> None:
    """Write the page: totals, frequent errors, and the `utterances` with most errors; it needs no other file."""
    ranked = sorted(scores.utterances.items(), key=lambda item: -Counts.of(item[1]).errors)
    shown = [(key, pairs) for key, pairs in ranked if Counts.of(pairs).errors][:utterances]
    file.write(f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n')
    file.write(f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n")
    file.write("<table><tr><th><th>error rate %<th>words<th>substituted<th>deleted<th>inserted\n")
    for name, counts in {"overall": scores.overall, **scores.scripts}.items():
        cells = (f"{counts.rate:.2f}", counts.words, counts.substituted, counts.deleted, counts.inserted)
        file.write(f"<tr><td>{escape(name)}{''.join(f'<td>{cell}' for cell in cells)}\n")
    file.write("</table>\n<table><tr><th>frequent errors<th>times\n")
    errors = Counter(pair for pairs in scores.utterances.values() for pair in pairs if pair[0] != pair[1])
    for pair, times in errors.most_common(CONFUSIONS):
        file.write(f"<tr><td>{_word(pair)}<td>{times}\n")
    file.write("</table>\n")
    wrong = sum(1 for _, pairs in ranked if Counts.of(pairs).errors)
    file.write(f"<p>{wrong} of {len(ranked)} utterances have errors; the {len(shown)} with most are below.\n")
    for key, pairs in shown:
        file.write(f"<article><h2>{escape(key)}</h2> {escape(str(Counts.of(pairs)))}\n")
        if audio and (sound := audio(key)):
            file.write(f'<br><audio controls preload="none" src="data:audio/flac;base64,{_flac(*sound)}"></audio>\n')
        file.write(f"<p>{' '.join(map(_word, pairs))}</article>\n")
    file.write("</html>\n")


def _word(pair: Pair) -> str:
    reference, hypothesis = (None if word is None else escape(word) for word in pair)
    if reference == hypothesis:
        return str(reference)
    if hypothesis is None:
        return f'<span class="del">{reference}</span>'
    if reference is None:
        return f'<ins class="ins">{hypothesis}</ins>'
    return f'<span class="sub"><del>{reference}</del> <ins>{hypothesis}</ins></span>'


def _flac(waveform: np.ndarray, sample_rate: int) -> str:
    """Base64 of the audio as flac, which browsers play and which loses nothing of 16 bits."""
    encoded = io.BytesIO()
    samples = (waveform / INT16_SCALE).clip(-1.0, 1.0)
    soundfile.write(encoded, samples, sample_rate, format="FLAC", subtype="PCM_16")
    return base64.b64encode(encoded.getvalue()).decode()
