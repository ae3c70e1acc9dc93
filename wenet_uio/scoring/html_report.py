"""A web page of recognition errors: each hypothesis beside its reference, errors in colour, with
audio players.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

import numpy as np
import soundfile

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.base.pages import data_uri, render
from wenet_uio.scoring.scores import Scores
from wenet_uio.scoring.wer import Counts, Pair
from wenet_uio.scoring.words import MEASURES

CONFUSIONS = 20
"""The page lists this many of the most frequent errors."""

SCRIPTS = {
    "Mandarin": "Chinese characters",
    "English": "Latin letters",
    "Number": "digits",
    "Japanese": "hiragana",
    "Other": "other or several scripts",
}
"""What the page calls a script: WeNet's names are those of languages, and German is not English."""

Audio = Callable[[str], tuple[np.ndarray, int] | None]
"""Maps a key to its waveform (samples,), on the scale of int16, and its sample rate in Hz; None:
there is no audio."""


class _Article(NamedTuple):
    """One utterance of the page."""

    key: str
    summary: str
    """Its errors in words."""
    pairs: list[Pair]
    sound: str | None
    """Audio as a data URI."""


def write_html(
    scores: Scores,
    file: IO[str],
    *,
    title: str,
    utterances: int,
    audio: Audio | None = None,
) -> None:
    """Write the page: totals, frequent errors, and the `utterances` with most errors. Their audio
    is embedded.
    """
    wrong: list[tuple[str, Counts]] = []
    errors: Counter[Pair] = Counter()
    for key, pairs in scores.utterances.items():
        wrong_pairs = [pair for pair in pairs if pair[0] != pair[1]]
        if wrong_pairs:
            wrong.append((key, Counts.of(pairs)))
            errors.update(wrong_pairs)
    wrong.sort(key=lambda item: -item[1].errors)

    totals = {"overall": scores.overall}
    for script, counts in scores.scripts.items():
        totals[SCRIPTS[script]] = counts

    page = render(
        "errors",
        title=title,
        totals=totals,
        measure=scores.measure,
        unit=MEASURES[scores.measure],
        language=_language_code(scores),
        players=audio is not None,
        confusions=errors.most_common(CONFUSIONS),
        wrong=len(wrong),
        utterances=len(scores.utterances),
        shown=len(wrong[:utterances]),
        articles=_make_articles(scores, wrong[:utterances], audio),
    )
    file.writelines(page)


def _make_articles(
    scores: Scores, shown: Iterable[tuple[str, Counts]], audio: Audio | None
) -> Iterator[_Article]:
    """Yield the utterances of the page while it is written, so that memory has one sound."""
    for key, counts in shown:
        recording = audio(key) if audio else None
        sound = data_uri(_encode_flac(*recording), "audio/flac") if recording else None
        yield _Article(
            key, _describe_errors(counts, MEASURES[scores.measure]), scores.utterances[key], sound
        )


def _describe_errors(counts: Counts, counted: str) -> str:
    """Say the errors of an utterance, such as `2 errors in 5 words: 1 substituted, 1 deleted`."""
    kinds = ("substituted", "deleted", "inserted")
    parts = [f"{getattr(counts, kind)} {kind}" for kind in kinds if getattr(counts, kind)]
    errors = "1 error" if counts.errors == 1 else f"{counts.errors} errors"
    return f"{errors} in {counts.words} {counted}: {', '.join(parts)}"


def _language_code(scores: Scores) -> str:
    """Return the code of the language of the texts, as far as their script tells it; else ""."""
    words = {script: counts.words for script, counts in scores.scripts.items() if counts.words}
    if "Japanese" in words:
        return "ja"
    return "zh" if max(words, key=words.__getitem__, default="") == "Mandarin" else ""


def _encode_flac(waveform: np.ndarray, sample_rate: int) -> bytes:
    """Encode as 16-bit FLAC: browsers play it, and 16-bit audio loses nothing."""
    encoded = io.BytesIO()
    samples = (waveform / INT16_SCALE).clip(-1.0, 1.0)
    soundfile.write(encoded, samples, sample_rate, format="FLAC", subtype="PCM_16")
    return encoded.getvalue()
