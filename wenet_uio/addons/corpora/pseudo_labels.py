"""Choose which recognised texts become the texts of utterances without transcripts."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wenet_uio.prepare.texts import TEXTS
from wenet_uio.scoring.wer import Counts, align
from wenet_uio.scoring.words import WordRules
from wenet_uio.text.normalize import spell_numbers
from wenet_uio.text.table import read_table

DIGITS = ("keep", "leave_out", "words")
"""What may happen to texts with digits."""
_CHARACTERS = WordRules("char")
_NOTE = re.compile(r"[\s.…♪-]*((\[[^]]*\]|\([^)]*\)|\*[^*]*\*)[\s.,!?…♪-]*)+")
"""A text of a Whisper that only names what it heard, such as [BLANK_AUDIO] or (upbeat music)."""


class Label(NamedTuple):
    """The best recognised text of an utterance."""

    text: str
    confidence: float | None = None
    """Geometric mean over the tokens, 0 to 1; None if the decode mode has no confidences, or the
    text is empty."""


class Speech(NamedTuple):
    """An utterance without a text."""

    key: str
    seconds: float


class LeftOut(NamedTuple):
    """Why an utterance gets no label."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Limits:
    """Bounds on labels. None switches a bound off.

    Raises:
        ValueError: a bound is negative or no number, or a lower bound is above its upper bound.
    """

    min_confidence: float | None = None
    """0 to 1."""
    min_seconds: float | None = None
    max_seconds: float | None = None
    min_rate: float | None = None
    """Characters per second, without spaces."""
    max_rate: float | None = None
    max_repeats: int | None = None
    """How often a part of a text may stand in a row: a character, a word, a sentence. Decoders with
    attention may repeat themselves until their longest text."""
    max_cer: float | None = None
    """Largest character error rate in % between the texts of two models; the text that becomes the
    label is the reference."""

    def __post_init__(self) -> None:
        bounds = {name: bound for name, bound in vars(self).items() if bound is not None}
        for name, bound in bounds.items():
            least = int(name == "max_repeats")
            if not least <= bound < math.inf:
                raise ValueError(f"{name}: expected a number of at least {least}, found {bound}")

        if bounds.get("min_confidence", 0) > 1:
            raise ValueError(
                f"min_confidence: expected a number from 0 to 1, found {self.min_confidence}"
            )

        for name in ("seconds", "rate"):
            least, most = bounds.get(f"min_{name}", 0), bounds.get(f"max_{name}", math.inf)
            if least > most:
                raise ValueError(
                    f"min_{name} {least} is above max_{name} {most}: no utterance would be left"
                )


@dataclass(frozen=True)
class Spelling:
    """How recognised texts are written as labels.

    Raises:
        ValueError: a value is unknown.
    """

    text: str = "none"
    """Normalisation, a key of TEXTS."""
    digits: str = "keep"
    """keep; leave_out: texts with digits become no labels; words: English numbers with one reading
    are written as words, and texts with other digits become no labels."""

    def __post_init__(self) -> None:
        for name, value, known in (("text", self.text, TEXTS), ("digits", self.digits, DIGITS)):
            if value not in known:
                raise ValueError(f"{name}: expected {', '.join(known)}, found {value!r}")

    def __call__(self, text: str) -> str:
        """Return a text as it is written in a label."""
        if self.digits == "words":
            text = spell_numbers(text)
        return TEXTS[self.text](text)

    def reason(self, text: str) -> LeftOut | None:
        """Say why a text, as it is written in a label, cannot be one; None if it can."""
        if self.digits != "keep" and any(map(str.isdigit, text)):
            return LeftOut("digits", text)
        return None


class Choice(NamedTuple):
    """The labels of a list, and the utterances without one."""

    texts: dict[str, str]
    """{key: text}, in the order of the list."""
    left_out: dict[str, LeftOut]
    changed: int
    """Number of texts that are not written as they were recognised."""


def read_labels(results: str | Path) -> dict[str, Label]:
    """Read the results of one decode mode: `nbest.jsonl` of recognize.py's folder, else its `text`.

    Raises:
        OSError: the folder has neither file.
        ValueError: a line is not in the form that recognize.py writes.
    """
    path = Path(results, "nbest.jsonl")
    if not path.exists():
        return {key: Label(text) for key, text in read_table(Path(results, "text")).items()}

    labels = {}
    # split(), because splitlines() would also cut at separators inside a text
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line:
            continue

        try:
            values = json.loads(line)
            best = values["hypotheses"][0]
            labels[values["key"]] = Label(str(best["text"]).strip(), best.get("confidence"))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}:{number}: not a line of recognize.py ({error!r}); decode again"
            ) from None

    return labels


def choose_labels(
    utterances: Sequence[Speech],
    labels: Mapping[str, Label],
    limits: Limits,
    others: Mapping[str, Label] | None = None,
    spelling: Spelling = Spelling(),
) -> Choice:
    """Choose the utterances that get their recognised text as label.

    Args:
        utterances: all utterances of the list.
        labels: of the model whose texts become the labels, by key.
        limits: the bounds; those on texts hold for texts as they are written in labels.
        others: of a second model. `limits.max_cer` bounds the difference.
        spelling: how the texts are written.

    Raises:
        ValueError: a bound needs confidences or a second model, and there are none.
    """
    _check_results(labels, limits, others)
    count_of_key = Counter(utterance.key for utterance in utterances)
    recognised, labels = labels, _spell_labels(labels, spelling)
    others = None if others is None else _spell_labels(others, spelling)
    texts: dict[str, str] = {}
    left_out: dict[str, LeftOut] = {}

    for speech in utterances:
        key, label = speech.key, labels.get(speech.key)
        if count_of_key[key] > 1:
            left_out[key] = LeftOut("key_twice", f"{count_of_key[key]} utterances have this key")
            continue

        if label is None:
            detail = "no result; the file `skipped` of the results says why"
            left_out[key] = LeftOut("not_recognised", detail)
            continue

        reason = (
            _why_unusable(recognised[key].text, label.text, limits, spelling)
            or _why_out_of_bounds(speech, label, limits)
            or _why_different(key, label, limits, others)
        )
        if reason:
            left_out[key] = reason
        else:
            texts[key] = label.text

    changed = sum(text != recognised[key].text for key, text in texts.items())
    return Choice(texts, left_out, changed)


def _spell_labels(labels: Mapping[str, Label], spelling: Spelling) -> dict[str, Label]:
    return {key: label._replace(text=spelling(label.text)) for key, label in labels.items()}


def find_repetition(text: str, most: int) -> tuple[str, int] | None:
    """Return the first part of a text that stands more than `most` times in a row, and how often;
    None if there is none.

    Letter case, punctuation and spaces do not count.
    """
    letters = "".join(
        char if unicodedata.category(char)[0] in "LMN" else " " for char in text.lower()
    )
    words = f"{' '.join(letters.split())} "
    longest = max(1, len(words) // (most + 1))
    found = re.search(rf"(.{{1,{longest}}}?)\1{{{most},}}", words)
    return None if found is None else (found[1].strip(), len(found[0]) // len(found[1]))


def _check_results(
    labels: Mapping[str, Label], limits: Limits, others: Mapping[str, Label] | None
) -> None:
    """Raise ValueError if the results lack what a bound needs."""
    if (others is None) != (limits.max_cer is None):
        raise ValueError(
            "max_cer and the results of a second model belong together: give both, or neither"
        )

    spoken = [label for label in labels.values() if label.text]
    no_confidences = bool(spoken) and all(label.confidence is None for label in spoken)
    if limits.min_confidence is not None and no_confidences:
        raise ValueError(
            "min_confidence: the results have no confidences; decode with --token_times in a mode "
            "that has them (ctc_greedy_search, attention_rescoring, attention), or leave "
            "min_confidence out"
        )


def _why_unusable(recognised: str, text: str, limits: Limits, spelling: Spelling) -> LeftOut | None:
    """Say why a text is no label, whatever the speech; None if it can be one.

    Args:
        recognised: the text before it was spelled as a label.
    """
    if _NOTE.fullmatch(recognised):
        return LeftOut("note", recognised)
    if not text.strip():
        return LeftOut("empty", "nothing was recognised")
    if limits.max_repeats is not None:
        repeated = find_repetition(text, limits.max_repeats)
        if repeated is not None:
            return LeftOut("repeats", f"{repeated[0]!r} {repeated[1]} times in a row")

    return spelling.reason(text)


def _why_out_of_bounds(speech: Speech, label: Label, limits: Limits) -> LeftOut | None:
    """Say why a label is out of the bounds on one model; None if it is inside."""
    characters = sum(not char.isspace() for char in label.text)
    rate = characters / speech.seconds if speech.seconds else math.inf
    bounds = (
        ("short", speech.seconds, limits.min_seconds, None, "s"),
        ("long", speech.seconds, None, limits.max_seconds, "s"),
        ("slow", rate, limits.min_rate, None, "characters per second"),
        ("fast", rate, None, limits.max_rate, "characters per second"),
        ("confidence", label.confidence or 0.0, limits.min_confidence, None, ""),
    )
    for reason, value, least, most, unit in bounds:
        if (least is not None and value < least) or (most is not None and value > most):
            return LeftOut(reason, f"{value:.4g} {unit}".strip())

    return None


def _why_different(
    key: str, label: Label, limits: Limits, others: Mapping[str, Label] | None
) -> LeftOut | None:
    """Say why a label differs too much from that of the second model; None if it does not."""
    if others is None or limits.max_cer is None:
        return None
    if key not in others:
        return LeftOut("not_recognised", "no result of the second model")

    rate = Counts.of(align(_CHARACTERS(label.text), _CHARACTERS(others[key].text))).rate
    if rate <= limits.max_cer:
        return None

    return LeftOut(
        "disagreement", f"CER {rate:.4g} %; the second model recognised: {others[key].text}"
    )
