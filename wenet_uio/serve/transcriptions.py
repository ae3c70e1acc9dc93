"""POST /v1/audio/transcriptions and /v1/audio/translations, as OpenAI's API has them."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from wenet_uio.api.inputs import Input
from wenet_uio.api.options import TranscribeOptions
from wenet_uio.api.recogniser import SpeechRecogniser
from wenet_uio.audio.interruption import interruptible
from wenet_uio.audio.read import audio_info, is_array
from wenet_uio.search.context_graph import tokenize_phrases
from wenet_uio.search.options import SCORED
from wenet_uio.search.results import Transcript, TranscriptSegment
from wenet_uio.serve.forms import Upload
from wenet_uio.serve.messages import (
    MOST_PHRASE_CHARACTERS,
    LimitError,
    RefusedError,
    cue_of,
    phrases_of,
)
from wenet_uio.serve.metrics import Metrics
from wenet_uio.serve.options import ServeOptions
from wenet_uio.serve.transfers import Transfers

GONE_AFTER = 0.5
"""Seconds between two looks whether the client is still there."""


class GoneError(Exception):
    """The client has vanished."""


@dataclass(frozen=True)
class Job:
    """A recording that is to be transcribed."""

    upload: Upload
    task: str
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for the text any more."""

    def check(self) -> None:
        """Check whether somebody waits for the text.

        Raises:
            GoneError: the client has vanished.
        """
        if self.gone.is_set():
            raise GoneError


class Transcriptions:
    """Transcribes recordings in a thread of its own, one after the other."""

    def __init__(
        self, recogniser: SpeechRecogniser, options: ServeOptions, metrics: Metrics
    ) -> None:
        self._recogniser, self._limits, self._metrics = recogniser, options.limits, metrics
        self._options = TranscribeOptions(**options.transcribing)
        self._allow_tensors = options.allow_tensors
        self._transfers = Transfers(options.limits)
        self._thread = ThreadPoolExecutor(1, "transcriptions")
        self.busy = 0
        """Recordings in work or waiting; those that still arrive are not among them."""

    @property
    def unanswered(self) -> int:
        """Recordings in work, waiting, or arriving."""
        return self.busy + self._transfers.count

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: web.Request, task: str) -> web.Response:
        """Answer a request.

        Args:
            task: transcribe or translate.

        Raises:
            RefusedError: the request is wrong, or a limit is reached.
            AudioError: the recording cannot be read.
            GoneError: the client has vanished.
        """
        tasks = self._recogniser.recogniser.model.prompt_tasks
        if task == "translate" and task not in tasks:
            raise RefusedError("this model does not translate; use /v1/audio/transcriptions")

        self._check_room()
        upload = await self._transfers.receive(request)
        # Others may have taken the places while this recording arrived.
        self._check_room()
        job = Job(upload, task)
        self._count(1)
        try:
            transcript, warnings = await self._done(job, request)
        finally:
            job.gone.set()
            self._count(-1)

        self._metrics.audio.labels("recording").inc(transcript.seconds)
        return written(transcript, warnings, job, self._recogniser)

    def _check_room(self) -> None:
        if self.busy >= self._limits.max_uploads:
            raise LimitError(
                "max_uploads", f"{self.busy} recordings are in work or wait; try again later"
            )

    def _count(self, change: int) -> None:
        self.busy += change
        self._metrics.uploads.set(self.busy)

    async def _done(self, job: Job, request: web.Request) -> tuple[Transcript, list[str]]:
        """Transcribe in the thread; return the transcript, and warnings for the client.

        Raises:
            GoneError: the client has vanished, and the thread has given up its recording.
        """
        work = self._thread.submit(self._transcribe, job)
        result = asyncio.wrap_future(work)
        while not (await asyncio.wait((result,), timeout=GONE_AFTER))[0]:
            if request.transport is None or request.transport.is_closing():
                job.gone.set()
                # A recording that still waits for the thread needs no turn.
                if work.cancel():
                    raise GoneError

        return await result

    def _transcribe(self, job: Job) -> tuple[Transcript, list[str]]:
        options, warnings = self._options_of(job.upload.fields, job.task)
        if is_array(job.upload.audio) and not self._allow_tensors:
            raise RefusedError(
                "file: an array or a tensor instead of audio; send wav or flac (--allow_tensors)"
            )

        recording = Input(job.upload.audio)
        segments: list[TranscriptSegment] = []
        with interruptible(job.check):
            info = audio_info(recording.open())
            if info.num_samples / info.sample_rate > self._limits.max_seconds:
                raise LimitError(
                    "max_seconds", f"a recording may have {self._limits.max_seconds:g} s of audio"
                )

            for _, segment in self._recogniser.iterate([recording], options):
                if isinstance(segment, Exception):
                    raise segment
                job.check()
                segments.append(segment)

        return Transcript(tuple(segments), recording.seconds), warnings

    def _options_of(
        self, fields: Mapping[str, str], task: str
    ) -> tuple[TranscribeOptions, list[str]]:
        """Return the options of the server with the task, language and hot words of a request, and
        what is said of them.
        """
        options = self._with_language(fields.get("language"))
        if task == "translate":
            options = replace(options, decoding={**options.decoding, "task": task})

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


def written(
    transcript: Transcript, warnings: list[str], job: Job, recogniser: SpeechRecogniser
) -> web.Response:
    """Return the answer in the format of the request."""
    kind = job.upload.response_format
    if kind == "text":
        return web.Response(text=f"{transcript.text}\n")
    if kind == "srt":
        return web.Response(text=f"{transcript.to_srt()}\n", content_type="application/x-subrip")
    if kind == "vtt":
        return web.Response(text=f"{transcript.to_vtt()}\n", content_type="text/vtt")

    content: dict[str, Any] = {"text": transcript.text}
    requested = job.upload.fields.get("language", "")
    if kind == "verbose_json":
        content = {
            "task": job.task,
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
