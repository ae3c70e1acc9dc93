"""Choose which recognised texts become the texts of utterances without transcripts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wenet_uio.scoring.wer import Counts, align
from wenet_uio.scoring.words import WordRules
from wenet_uio.text.table import read_table

_CHARACTERS = WordRules("char")


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
    max_cer: float | None = None
    """Largest character error rate in % between the texts of two models; the text that becomes the
    label is the reference."""

    def __post_init__(self) -> None:
        bounds = {name: bound for name, bound in vars(self).items() if bound is not None}
        for name, bound in bounds.items():
            if not 0 <= bound < math.inf:
                raise ValueError(f"{name}: expected a number of at least 0, found {bound}")

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


class Choice(NamedTuple):
    """The labels of a list, and the utterances without one."""

    texts: dict[str, str]
    """{key: text}, in the order of the list."""
    left_out: dict[str, LeftOut]


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


def choose(
    utterances: Sequence[Speech],
    labels: Mapping[str, Label],
    limits: Limits,
    others: Mapping[str, Label] | None = None,
) -> Choice:
    """Choose the utterances that get their recognised text as label.

    Args:
        utterances: all utterances of the list.
        labels: of the model whose texts become the labels, by key.
        limits: the bounds.
        others: of a second model. `limits.max_cer` bounds the difference.

    Raises:
        ValueError: a bound needs confidences or a second model, and there are none.
    """
    _check(labels, limits, others)
    count_of_key = Counter(utterance.key for utterance in utterances)
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

        reason = _reason(speech, label, limits) or _disagreement(key, label, limits, others)
        if reason:
            left_out[key] = reason
        else:
            texts[key] = label.text

    return Choice(texts, left_out)


def _check(labels: Mapping[str, Label], limits: Limits, others: Mapping[str, Label] | None) -> None:
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
            "that has them (ctc_greedy_search, attention_rescoring), or leave min_confidence out"
        )


def _reason(speech: Speech, label: Label, limits: Limits) -> LeftOut | None:
    """Say why a label is out of the bounds on one model; None if it is inside."""
    characters = sum(not char.isspace() for char in label.text)
    if not characters:
        return LeftOut("empty", "nothing was recognised")

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


def _disagreement(
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
