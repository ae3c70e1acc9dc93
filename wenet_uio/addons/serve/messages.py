"""Messages of WeNet's WebSocket protocol (runtime/core/websocket), with our optional fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from wenet_uio.addons.listen.results import Cue, TranscriptSegment
from wenet_uio.addons.listen.tracks import ChannelError
from wenet_uio.audio.decoders import AudioError
from wenet_uio.search.context_graph import MOST_SCORES, text_and_score

MOST_PHRASES = 1000
MOST_PHRASE_CHARACTERS, MOST_TOTAL_CHARACTERS = 100, 20_000
"""Characters of one hot phrase, and of all phrases of a stream. The time to prepare phrases grows
faster than their length."""
MOST_SIGNAL_CHARACTERS = 1 << 18
"""Characters of a text message; more than MOST_TOTAL_CHARACTERS need in any spelling of JSON."""
MOST_SCORE = 100.0
"""Largest size of the score of hot phrases."""
MOST_NBEST = 100
FAILED = "failed"
"""Code of an error that is the fault of the server."""
RATES = 4000, 384_000
"""Lowest and highest sample rate of a stream, in Hz."""


class RefusedError(Exception):
    """The server refuses a request; the message goes to the client."""

    def __init__(self, message: str, *, code: str | None = None) -> None:
        """Prepare the refusal; `code` is that of OpenAI's API, for programs."""
        super().__init__(message)
        self.code = code


class LimitError(RefusedError):
    """A limit of the server is reached; `reason` is its name in the metrics."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message, code=reason)
        self.reason = reason


class HotWordsError(RefusedError):
    """The hot words of a client cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(f"hot_words: {message}", code="hot_words")


def code_of(error: Exception) -> str | None:
    """Return the code of an error, for which the page has its own words; None: it has none."""
    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, PermissionError):
        return "token"
    if isinstance(error, ChannelError):
        return "channel"
    if isinstance(error, AudioError):
        return "audio"
    return None if isinstance(error, ValueError) else FAILED


@dataclass(frozen=True)
class Start:
    """Begins a stream: the start signal of a client of WeNet's protocol."""

    nbest: int = 1
    continuous_decoding: bool = False
    """Whether the stream continues after the end of an utterance."""
    sample_rate: int | None = None
    """Hz; None: the rate of the model."""
    hot_words: tuple[str, ...] = ()
    hot_word_score: float | None = None
    token: str | None = None
    prompt: str = ""
    """A text with further hot words; those that cannot be used are left out."""
    language: str | None = None
    """Used by a model with a prompt; None: that of the server."""
    end_silence: float | None = None
    """Seconds of silence after words that end an utterance; None: the rule of the server."""


def parse_signal(text: str) -> tuple[str, dict[str, Any]]:
    """Parse a text message: its signal (start or end), and all its fields.

    Raises:
        RefusedError: the message is not JSON, or has another signal.
    """
    message = parse_object(text, '{"signal": "start"}')
    signal = message.get("signal")
    if signal not in ("start", "end"):
        raise RefusedError('a text message needs "signal": "start" or "end"')

    return signal, message


def parse_object(text: str, example: str) -> dict[str, Any]:
    """Parse a text message, which is a JSON object; the error names an example.

    Raises:
        RefusedError: it is none, or too long.
    """
    if len(text) > MOST_SIGNAL_CHARACTERS:
        raise RefusedError(
            f"a text message may have {MOST_SIGNAL_CHARACTERS} characters, found {len(text)}"
        )

    try:
        message = json.loads(text)
        # A lone surrogate such as \ud800 is valid JSON, but no text.
        json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        message = None

    if not isinstance(message, dict):
        raise RefusedError(f"a text message must be JSON, an object such as {example}")
    return message


def parse_start(message: dict[str, Any]) -> Start:
    """Read a start signal. Unknown fields are ignored, as in WeNet.

    Raises:
        RefusedError: a field has the wrong type, or is out of range.
    """
    score = _read_number(message, "hot_word_score", None)
    if score is not None and not -MOST_SCORE <= score <= MOST_SCORE:
        raise RefusedError(f"hot_word_score: expected -100 to 100, found {score}")

    return Start(
        nbest=read_whole_number(message, "nbest", 1, (1, MOST_NBEST)) or 1,
        continuous_decoding=_read_flag(message, "continuous_decoding"),
        sample_rate=read_whole_number(message, "sample_rate", None, RATES),
        hot_words=parse_phrases(message.get("hot_words") or []),
        hot_word_score=score,
        token=None if message.get("token") is None else str(message["token"]),
    )


def parse_phrases(value: Any) -> tuple[str, ...]:
    """Read hot words from a list of texts, or from a text with one phrase a line.

    Raises:
        RefusedError: another type, too many, too long, or a score is out of range.
    """
    if isinstance(value, str):
        value = value.splitlines()
    if not isinstance(value, list) or not all(isinstance(phrase, str) for phrase in value):
        raise HotWordsError("expected a list of phrases")

    phrases = tuple(phrase.strip() for phrase in value if phrase.strip())
    longest = max(map(len, phrases), default=0)
    total = sum(map(len, phrases))

    if len(phrases) > MOST_PHRASES:
        raise HotWordsError(f"at most {MOST_PHRASES} phrases, found {len(phrases)}")

    if longest > MOST_PHRASE_CHARACTERS:
        raise HotWordsError(
            f"a phrase may have {MOST_PHRASE_CHARACTERS} characters, found {longest}"
        )

    if total > MOST_TOTAL_CHARACTERS:
        raise HotWordsError(
            f"all phrases may have {MOST_TOTAL_CHARACTERS} characters, found {total}"
        )

    check_scores(phrases)
    return phrases


def check_scores(phrases: Sequence[str]) -> None:
    """Check the scores of phrases such as `new york :2.0`.

    Raises:
        RefusedError: a score is out of range, or there are too many different ones.
    """
    scores = {text_and_score(phrase)[1] for phrase in phrases}
    if len(scores) > MOST_SCORES:
        raise HotWordsError(f"at most {MOST_SCORES} different scores, found {len(scores)}")

    largest = max((abs(score) for score in scores if score is not None), default=0.0)
    if largest > MOST_SCORE:
        raise HotWordsError(f"a score may be -100 to 100, found {largest:g} in size")


def fitting_phrases(phrases: Iterable[str], taken: Sequence[str]) -> list[str]:
    """Return the first of the phrases that fit into the limits of number and length, beside those
    that are taken.
    """
    kept: list[str] = []
    free = MOST_TOTAL_CHARACTERS - sum(map(len, taken))
    for phrase in phrases:
        free -= len(phrase)
        if free < 0 or len(taken) + len(kept) == MOST_PHRASES:
            break
        kept.append(phrase)

    return kept


def server_ready(
    streaming: bool, reason: str, sample_rate: int, warnings: Sequence[str]
) -> dict[str, Any]:
    """Make the answer to `start`.

    Args:
        reason: why the model cannot stream, so that windows are decoded again; else empty.
        sample_rate: Hz of the samples that the client sends.
    """
    our_fields: dict[str, Any] = {
        "streaming": streaming,
        "reason": reason,
        "sample_rate": sample_rate,
    }
    if warnings:
        our_fields["warnings"] = list(warnings)

    return {"status": "ok", "type": "server_ready", **our_fields}


def partial_result(texts: Sequence[str]) -> dict[str, Any]:
    """Make the message with the texts of the utterance so far, best first."""
    return {
        "status": "ok",
        "type": "partial_result",
        "nbest": _to_json([{"sentence": text} for text in texts]),
    }


def final_result(
    segment: TranscriptSegment, texts: Sequence[str], reason: str | None = None
) -> dict[str, Any]:
    """Make the message with the texts of an ended utterance, best first.

    The best text has the times of its words, in milliseconds.

    Args:
        reason: why there are no words, if it is known.
    """
    word_pieces = [
        {"word": word.text, "start": round(word.start * 1000), "end": round(word.end * 1000)}
        for word in segment.words
    ]
    nbest: list[dict[str, Any]] = [{"sentence": text} for text in texts]
    nbest[0]["word_pieces"] = word_pieces

    # `segment` and `reason` are our fields. WeNet has the n-best list as a text that holds JSON.
    segment_fields = {**segment.to_dict(), "cues": [cue_fields(cue) for cue in segment.cues()]}
    return {
        "status": "ok",
        "type": "final_result",
        "nbest": _to_json(nbest),
        "segment": segment_fields,
        **reason_field(reason),
    }


def reason_field(reason: str | None) -> dict[str, str]:
    """Make the field that says why there are no words; none if that is not known."""
    return {} if reason is None else {"reason": reason}


def speech_end(warnings: Sequence[str]) -> dict[str, Any]:
    """Make the last message of a stream."""
    our_fields = {"warnings": list(warnings)} if warnings else {}
    return {"status": "ok", "type": "speech_end", **our_fields}


def stream_failed(message: str, code: str | None = None) -> dict[str, Any]:
    """Make the message that ends a stream with a reason; `code` is our field."""
    our_fields = {"code": code} if code else {}
    return {"status": "failed", "message": message, **our_fields}


def api_error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Make an error as OpenAI's API has it.

    Args:
        status: that of HTTP; from 500 on the server is to blame.
        code: see `code_of`.
    """
    is_request = status < HTTPStatus.INTERNAL_SERVER_ERROR
    error_type = "invalid_request_error" if is_request else "server_error"
    return {"message": message, "type": error_type, "param": None, "code": code}


def cue_fields(cue: Cue) -> dict[str, Any]:
    """Make the JSON object of a subtitle; times in seconds."""
    return {"start": round(cue.start, 3), "end": round(cue.end, 3), "text": cue.text}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_whole_number(
    message: Mapping[str, Any], name: str, default: int | None, allowed: tuple[int, int]
) -> int | None:
    """Return a whole number of a message, from the first to the last of those `allowed`.

    Raises:
        RefusedError: it is another one.
    """
    value = _read_number(message, name, default)
    if value is None:
        return None

    if value != int(value) or not allowed[0] <= value <= allowed[1]:
        raise RefusedError(
            f"{name}: expected a whole number from {allowed[0]} to {allowed[1]}, found {value}"
        )

    return int(value)


def _read_number(message: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = message.get(name, default)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e9:
        raise RefusedError(f"{name}: expected a number, found {value!r:.40}")

    return value


def _read_flag(message: dict[str, Any], name: str) -> bool:
    value = message.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError(f"{name}: expected true or false, found {value!r:.40}")
    return value
