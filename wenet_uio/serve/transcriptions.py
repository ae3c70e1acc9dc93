"""POST /v1/audio/transcriptions, as OpenAI's API has it."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import BodyPartReader, MultipartReader, web

from wenet_uio.api.inputs import Input
from wenet_uio.api.options import TranscribeOptions
from wenet_uio.api.recogniser import SpeechRecogniser
from wenet_uio.audio.read import audio_info
from wenet_uio.search.context_graph import tokenize_phrases
from wenet_uio.search.options import SCORED
from wenet_uio.search.results import Transcript, TranscriptSegment
from wenet_uio.serve.messages import (
    MOST_PHRASE_CHARACTERS,
    LimitError,
    RefusedError,
    cue_of,
    phrases_of,
)
from wenet_uio.serve.metrics import Metrics
from wenet_uio.serve.options import Limits

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
MOST_FIELD_BYTES = 1 << 16
READ_BYTES = 1 << 16


class GoneError(Exception):
    """The client has vanished."""


@dataclass(frozen=True)
class Upload:
    """The fields of a request."""

    audio: bytes
    fields: Mapping[str, str]

    @property
    def response_format(self) -> str:
        """Format of the answer."""
        return self.fields.get("response_format", "json")

    def check(self) -> None:
        """Check the fields.

        Raises:
            RefusedError: there is no such format, or the answer shall come in parts.
        """
        if self.response_format not in FORMATS:
            raise RefusedError(f"response_format: expected {', '.join(FORMATS)}")

        if self.fields.get("stream", "").lower() in ("true", "1"):
            raise RefusedError(
                "stream: not supported here; texts while somebody speaks come over the WebSocket"
            )


class Transcriptions:
    """Transcribes recordings in a thread of its own, one after the other."""

    def __init__(
        self,
        recogniser: SpeechRecogniser,
        options: TranscribeOptions,
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self._recogniser, self._options, self._limits, self._metrics = (
            recogniser,
            options,
            limits,
            metrics,
        )
        self._thread = ThreadPoolExecutor(1, "transcriptions")
        self.busy = 0
        """Recordings in work or waiting."""

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a request.

        Raises:
            RefusedError: the request is wrong, or a limit is reached.
            AudioError: the recording cannot be read.
        """
        if self.busy >= self._limits.max_uploads:
            raise LimitError(
                "max_uploads", f"{self.busy} recordings are in work or wait; try again later"
            )

        self.busy += 1
        self._metrics.uploads.set(self.busy)
        gone = threading.Event()

        try:
            upload = await read_upload(
                request, self._limits.max_upload_bytes, self._limits.idle_seconds
            )
            work = asyncio.get_running_loop().run_in_executor(
                self._thread, self._transcribe, upload, gone
            )
            while not (await asyncio.wait((work,), timeout=1.0))[0]:
                if request.transport is None or request.transport.is_closing():
                    gone.set()

            transcript, warnings = await work
        finally:
            gone.set()
            self.busy -= 1
            self._metrics.uploads.set(self.busy)

        self._metrics.audio.labels("recording").inc(transcript.seconds)
        return written(transcript, warnings, upload, self._recogniser)

    def _transcribe(self, upload: Upload, gone: threading.Event) -> tuple[Transcript, list[str]]:
        options, warnings = self._options_of(upload.fields)
        recording = Input(upload.audio)
        info = audio_info(recording.open())
        if info.num_samples / info.sample_rate > self._limits.max_seconds:
            raise LimitError(
                "max_seconds", f"a recording may have {self._limits.max_seconds:g} s of audio"
            )

        segments: list[TranscriptSegment] = []
        for _, segment in self._recogniser.iterate([recording], options):
            if isinstance(segment, Exception):
                raise segment
            if gone.is_set():
                raise GoneError
            segments.append(segment)

        return Transcript(tuple(segments), recording.seconds), warnings

    def _options_of(self, fields: Mapping[str, str]) -> tuple[TranscribeOptions, list[str]]:
        """Return the options of the server with the language and hot words of a request, and what
        is said of them.
        """
        options = self._with_language(fields.get("language"))
        wanted = phrases_of(fields.get("hot_words", ""))
        prompted, long = _prompted(fields.get("prompt", ""))
        if not (wanted or prompted or long):
            return options, []

        mode = options.mode or self._recogniser.usual_mode(scored=True)
        if mode not in SCORED:
            if wanted:
                raise RefusedError(
                    f"hot_words: not used in the mode {mode}, in which this server recognises"
                )
            return options, [f"prompt: not used in the mode {mode}"]

        known, warnings = spelled(wanted + prompted, self._recogniser)
        if long:
            warnings.append(
                f"prompt: left out {long} phrases of more than {MOST_PHRASE_CHARACTERS} characters"
            )

        return replace(options, hot_words=[*options.hot_words, *known]), warnings

    def _with_language(self, language: str | None) -> TranscribeOptions:
        """Return the options of the server; a model that is asked for a language transcribes in
        that of the request.
        """
        languages = self._recogniser.recogniser.model.prompt_languages
        if not language or not languages:
            return self._options
        if language not in languages:
            raise RefusedError(f"language {language!r}: this model knows {', '.join(languages)}")

        return replace(self._options, decoding={**self._options.decoding, "language": language})


def spelled(phrases: Sequence[str], recogniser: SpeechRecogniser) -> tuple[list[str], list[str]]:
    """Return the phrases that the units can spell, and a warning for the client, not for the log,
    that names the others.
    """
    _, unknown = tokenize_phrases(phrases, recogniser.recogniser.tokenizer)
    known = [phrase for phrase in phrases if phrase not in unknown]
    return known, [f"the units cannot spell: {', '.join(unknown)}"] if unknown else []


def _prompted(prompt: str) -> tuple[tuple[str, ...], int]:
    """Return the phrases of a prompt, and the number of those that are too long: OpenAI's prompts
    may be prose.
    """
    phrases = [phrase.strip() for phrase in re.split(r"[,;.\n]", prompt)]
    short = [phrase for phrase in phrases if len(phrase) <= MOST_PHRASE_CHARACTERS]
    return phrases_of(short), len(phrases) - len(short)


async def read_upload(request: web.Request, most: int, idle: float) -> Upload:
    """Read a multipart form into memory; nothing is written to a disk.

    Args:
        most: bytes of the recording.
        idle: seconds without data after which the client is given up.

    Raises:
        RefusedError: it is not such a form, has no file, or is too large.
    """
    if not request.content_type.startswith("multipart/"):
        raise RefusedError("expected a multipart form with the field file")

    parts: dict[str, bytes] = {}
    try:
        reader = await request.multipart()
        while (part := await asyncio.wait_for(reader.next(), idle)) is not None:
            if isinstance(part, MultipartReader):
                raise RefusedError("the form has a form within")
            parts[str(part.name)] = await _content(
                part, most if part.name == "file" else MOST_FIELD_BYTES, idle
            )
    except asyncio.TimeoutError:
        raise LimitError("idle_seconds", f"no data for {idle:g} s") from None
    except (ValueError, AssertionError) as error:
        raise RefusedError(f"the form cannot be read: {error}") from None

    audio = parts.pop("file", b"")
    if not audio:
        raise RefusedError("file: missing or empty")

    upload = Upload(
        audio,
        {name.removesuffix("[]"): text.decode("utf-8", "replace") for name, text in parts.items()},
    )
    upload.check()
    return upload


async def _content(part: BodyPartReader, most: int, idle: float) -> bytes:
    content = bytearray()
    while chunk := await asyncio.wait_for(part.read_chunk(READ_BYTES), idle):
        content += chunk
        if len(content) > most:
            raise LimitError("max_upload_bytes", f"{part.name}: at most {most} bytes")

    return bytes(content)


def written(
    transcript: Transcript, warnings: list[str], upload: Upload, recogniser: SpeechRecogniser
) -> web.Response:
    """Return the answer in the format of the request."""
    kind = upload.response_format
    if kind == "text":
        return web.Response(text=f"{transcript.text}\n")
    if kind == "srt":
        return web.Response(text=f"{transcript.to_srt()}\n", content_type="application/x-subrip")
    if kind == "vtt":
        return web.Response(text=f"{transcript.to_vtt()}\n", content_type="text/vtt")

    content: dict[str, Any] = {"text": transcript.text}
    requested = upload.fields.get("language", "")
    if kind == "verbose_json":
        content = {
            "task": "transcribe",
            "language": next(
                (segment.language for segment in transcript.segments if segment.language), requested
            ),
            "duration": round(transcript.seconds, 3),
            **content,
            "segments": [
                _segment(number, segment, recogniser)
                for number, segment in enumerate(transcript.segments)
            ],
            "words": [word.to_dict() for word in transcript.words],
        }

    if warnings:
        content["warnings"] = warnings

    return web.Response(
        text=json.dumps(content, ensure_ascii=False), content_type="application/json"
    )


def _segment(
    number: int, segment: TranscriptSegment, recogniser: SpeechRecogniser
) -> dict[str, Any]:
    """Return a segment with the fields of OpenAI's API; null where our models have no such value."""
    symbols = recogniser.recogniser.tokenizer.symbols
    sure = [math.log(max(token.confidence, 1e-30)) for token in segment.tokens]
    text = segment.text.encode()
    return {
        "id": number,
        "seek": round(segment.start * 100),
        **segment.to_dict(),
        "tokens": [symbols[token.text] for token in segment.tokens],
        "temperature": 0.0,
        "avg_logprob": sum(sure) / len(sure) if sure else 0.0,
        "compression_ratio": len(text) / len(zlib.compress(text)) if text else 0.0,
        "no_speech_prob": None,
        "cues": [cue_of(cue) for cue in segment.cues()],
    }
