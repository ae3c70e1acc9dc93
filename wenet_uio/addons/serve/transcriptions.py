"""POST /v1/audio/transcriptions and /v1/audio/translations, as OpenAI's API has them."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from aiohttp import web

from wenet_uio.addons.listen.inputs import MOST_CHANNELS, Input
from wenet_uio.addons.listen.options import TranscribeOptions
from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.addons.listen.results import Transcript, TranscriptSegment, added_text
from wenet_uio.addons.listen.tracks import ChosenChannel, parse_channel
from wenet_uio.addons.serve.decoder_process import DecoderProcesses
from wenet_uio.addons.serve.events import EventFeed, GoneError
from wenet_uio.addons.serve.messages import (
    FAILED,
    MOST_PHRASE_CHARACTERS,
    MOST_PHRASES,
    MOST_TOTAL_CHARACTERS,
    HotWordsError,
    LimitError,
    RefusedError,
    api_error,
    check_scores,
    code_of,
    cue_fields,
    fitting_phrases,
    parse_phrases,
    reason_field,
)
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.addons.serve.pulse import Pulse
from wenet_uio.addons.serve.speakers import FORMAT as DIARIZED
from wenet_uio.addons.serve.speakers import segment_id, speaker_names, speaker_segment
from wenet_uio.addons.serve.tokens import Account
from wenet_uio.addons.serve.turns import Turns
from wenet_uio.addons.serve.uploads import Transfers, Upload
from wenet_uio.addons.serve.visits import visit_of
from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.interruption import interruptible
from wenet_uio.audio.read import audio_info, is_array
from wenet_uio.search.context_graph import text_and_score, tokenize_phrases
from wenet_uio.search.modes import scored_modes

GONE_AFTER = 0.5
"""Seconds between two looks whether the client is still there."""
_BETWEEN_PHRASES = re.compile(r"[,;\n、，；。]|\.(?!\d)")
"""What separates the phrases of a prompt. A point before a digit belongs to a number."""

log = logging.getLogger(__name__)


class Remarks(NamedTuple):
    """What a client is told of its recording beside the text."""

    unspelled: tuple[str, ...] = ()
    """Hot words that the units cannot spell."""
    prompt: tuple[str, ...] = ()
    """What is left out of its prompt."""
    cut_short: str = ""
    """What is said of audio that is not whole."""

    @property
    def warnings(self) -> list[str]:
        """Return them as texts."""
        unspelled = [f"the units cannot spell: {', '.join(self.unspelled)}"]
        cut_short = [self.cut_short] if self.cut_short else []
        return [*(unspelled if self.unspelled else []), *self.prompt, *cut_short]


Transcribed = tuple[Transcript, Remarks]


@dataclass(frozen=True)
class Job:
    """A recording that is to be transcribed."""

    upload: Upload
    task: str
    account: Account
    feed: EventFeed | None = None
    """Takes an event for each segment; None: the answer comes at once."""
    speakers: list[str] = field(default_factory=list)
    """Names that the client gives to the channels; known when the recording is open."""
    arrived: float = field(default_factory=time.monotonic)
    """Time when the recording was complete."""
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
    """Transcribes recordings at once: each has a thread, and a process that decodes it. They take
    turns at the model.
    """

    def __init__(
        self, recogniser: SpeechRecogniser, options: ServeOptions, metrics: Metrics
    ) -> None:
        self._recogniser, self._limits, self._metrics = recogniser, options.limits, metrics
        self._options = TranscribeOptions(**options.transcribing)
        self._allow_tensors = options.allow_tensors
        self._transfers = Transfers(options.limits)
        self._threads = ThreadPoolExecutor(options.limits.max_uploads, "transcriptions")
        self._turns, self._processes = (
            Turns(self._options.batch_size, self._note_wait),
            DecoderProcesses(),
        )
        self._pulse = Pulse("recordings")
        self.busy = 0
        """Recordings in work; those that still arrive are not among them."""

    @property
    def unanswered(self) -> int:
        """Recordings in work, or arriving."""
        return self.busy + self._transfers.count

    @property
    def is_alive(self) -> bool:
        """Whether the thread that decodes segments runs."""
        return self._turns.is_alive()

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Those of the threads of recordings, and of the thread that decodes their segments."""
        return self._pulse, self._turns.pulse

    def start(self, calm: threading.Event) -> None:
        """Start the thread that decodes segments, and the process that forks decoders.

        Args:
            calm: set while no stream waits for the model.
        """
        self._turns.calm = calm
        self._processes.start()
        self._turns.start()

    def close(self) -> None:
        """End threads and processes."""
        self._turns.stop()
        self._processes.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: web.Request, task: str, account: Account) -> web.StreamResponse:
        """Answer a request, at once or with an event for each segment.

        Args:
            task: transcribe or translate.
            account: of the client's token.

        Raises:
            RefusedError: the request is wrong, or a limit is reached.
            AudioError: the recording cannot be read.
            GoneError: the client has vanished.
        """
        tasks = self._recogniser.recogniser.model.prompt_tasks
        if task == "translate" and task not in tasks:
            raise RefusedError("this model does not translate; use /v1/audio/transcriptions")

        self._check_room()
        account.check_seconds()
        upload = await self._transfers.receive(request)
        # Others may have taken the places while this recording arrived.
        self._check_room()
        job = Job(upload, task, account, EventFeed() if upload.streams else None)
        self._change_count(1)
        try:
            if job.feed is not None:
                return await self._answer_in_events(job, job.feed, request)
            transcript, remarks = await self._wait_for_text(job, request)
        finally:
            job.gone.set()
            self._change_count(-1)

        self._note_text(job, transcript.seconds, request)
        return format_answer(transcript, remarks, job, self._recogniser)

    async def _answer_in_events(
        self, job: Job, feed: EventFeed, request: web.Request
    ) -> web.StreamResponse:
        """Answer with events; when this returns, the thread has finished with the recording."""
        result = asyncio.wrap_future(self._threads.submit(self._transcribe_job, job))
        last_event = partial(self._last_event, job)
        try:
            return await feed.answer(request, result, last_event, self._limits.send_seconds)
        finally:
            job.gone.set()
            await asyncio.gather(result, return_exceptions=True)
            if not result.cancelled() and result.exception() is None:
                self._note_text(job, result.result()[0].seconds, request)

    def _last_event(self, job: Job, work: asyncio.Future[Transcribed]) -> dict[str, Any]:
        """Return the event with the whole text, or with the error that ended the work."""
        try:
            transcript, remarks = work.result()
        except (RefusedError, AudioError) as error:
            refusal = api_error(HTTPStatus.BAD_REQUEST, str(error), code_of(error))
            return {"type": "error", "error": refusal}
        except Exception:
            log.exception("error: a recording failed while its text was sent")
            message = "the server failed at this request"
            failure = api_error(HTTPStatus.INTERNAL_SERVER_ERROR, message, FAILED)
            return {"type": "error", "error": failure}

        content = answer_content(transcript, remarks, job, self._recogniser)
        return {"type": "transcript.text.done", **content}

    def _note_text(self, job: Job, seconds: float, request: web.Request) -> None:
        """Count a recording of `seconds` whose text goes to the client."""
        latency = time.monotonic() - job.arrived
        self._metrics.final_seconds.labels("recording").observe(latency)
        if seconds > 0:
            self._metrics.real_time_factor.labels("recording").observe(latency / seconds)
        self._metrics.audio.labels("recording").inc(seconds)
        visit_of(request).audio_seconds = seconds

    def _note_wait(self, seconds: float) -> None:
        self._metrics.queue_seconds.labels("recording").observe(seconds)

    def _check_room(self) -> None:
        if self.busy >= self._limits.max_uploads:
            raise LimitError(
                "max_uploads", f"{self.busy} recordings are in work or wait; try again later"
            )

    def _change_count(self, change: int) -> None:
        self.busy += change

    async def _wait_for_text(self, job: Job, request: web.Request) -> Transcribed:
        """Transcribe in a thread; return the transcript, and what the client is told of it.

        Raises:
            GoneError: the client has vanished, and the thread has given up its recording.
        """
        result = asyncio.wrap_future(self._threads.submit(self._transcribe_job, job))
        while True:
            done, _ = await asyncio.wait((result,), timeout=GONE_AFTER)
            if done:
                return await result
            if request.transport is None or request.transport.is_closing():
                job.gone.set()

    def _transcribe_job(self, job: Job) -> Transcribed:
        """Recognise a recording, in a thread of its own; tells each new segment.

        Raises:
            RefusedError, LimitError, AudioError: the recording is not taken, or cannot be read.
        """
        options, remarks = self._request_options(job.upload.fields, job.task)
        if is_array(job.upload.audio) and not self._allow_tensors:
            raise RefusedError(
                "file: an array or a tensor instead of audio; send wav or flac (--allow_tensors)"
            )

        def check() -> None:
            self._pulse.beat()
            job.check()
            self._turns.yield_to_streams()

        segments: list[TranscriptSegment] = []
        decoding = self._processes.decode(job.upload.take_audio(), self._limits.max_seconds)
        with self._pulse.working(), interruptible(check), decoding as opened:
            recording = Input(opened)
            info = audio_info(recording.open())
            duration = info.num_samples / info.sample_rate
            self._check_length(info)

            job.account.check_seconds()
            job.account.spend(duration * info.channels)
            lines = job.upload.fields.get("known_speaker_names", "")
            job.speakers.extend(speaker_names(lines, info.channels))
            remarks = remarks._replace(cut_short=info.cut_short)
            self._send_segment(job, segments, duration)
            for _, segment in self._recogniser.iterate([recording], options, self._turns.take):
                if isinstance(segment, Exception):
                    raise segment
                check()
                segments.append(segment)
                self._send_segment(job, segments, duration)

        return Transcript(tuple(segments), recording.seconds, recording.reason), remarks

    def _check_length(self, info: AudioInfo) -> None:
        """Check the work that a recording makes: each of its channels is decoded.

        Raises:
            LimitError: it has too many channels, or too much audio in all of them together.
        """
        if info.is_features:
            return  # refused by name when it is read
        if info.channels > MOST_CHANNELS:
            raise LimitError(
                "max_seconds",
                f"a recording may have {MOST_CHANNELS} channels, this one has {info.channels}",
            )
        if info.num_samples * info.channels > self._limits.max_seconds * info.sample_rate:
            together = ", all channels together" if info.channels > 1 else ""
            raise LimitError(
                "max_seconds",
                f"a recording may have {self._limits.max_seconds:g} s of audio{together}",
            )

    def _send_segment(
        self, job: Job, segments: Sequence[TranscriptSegment], duration: float
    ) -> None:
        """Send the event of the last segment, if the answer comes in events."""
        if job.feed is None:
            return

        event = delta_event(segments, duration)
        if segments and job.upload.response_format == "verbose_json":
            event["segment"] = _segment_fields(len(segments) - 1, segments[-1], self._recogniser)
        if segments and job.upload.response_format == DIARIZED:
            event["segment_id"] = segment_id(len(segments) - 1)
            job.feed.put(speaker_segment(len(segments) - 1, segments[-1], job.speakers))
        job.feed.put(event)

    def _request_options(
        self, fields: Mapping[str, str], task: str
    ) -> tuple[TranscribeOptions, Remarks]:
        """Return the options of the server with the task, language and hot words of a request, and
        what is said of them.
        """
        decoding = self.decoding_in(fields.get("language"))
        options = replace(self._options, decoding=decoding)
        if fields.get("channel"):
            options = replace(options, channel=_parse_channel(fields["channel"]))
        if task == "translate":
            options = replace(options, decoding={**options.decoding, "task": task})

        wanted = parse_phrases(fields.get("hot_words", ""))
        hot_words, remarks = self.choose_hot_words(wanted, fields.get("prompt", ""))
        return replace(options, hot_words=hot_words), remarks

    def choose_hot_words(self, wanted: Sequence[str], prompt: str) -> tuple[Sequence[str], Remarks]:
        """Return the hot words of the server with those of a client, and what the client is told of
        them.

        Args:
            wanted: phrases that the client names.
            prompt: a text with further phrases; those that cannot be used are left out.

        Raises:
            RefusedError: the mode of the server uses no hot words, or the scores differ too much.
        """
        options = self._options
        prompted, left_out = _prompt_phrases(prompt, wanted)
        if not (wanted or prompted or left_out):
            return options.hot_words, Remarks()

        mode = options.mode or self._recogniser.usual_mode(scored=True)
        if mode not in scored_modes():
            if wanted:
                raise HotWordsError(f"not used in the mode {mode}, in which this server recognises")
            return options.hot_words, Remarks(prompt=(f"prompt: not used in the mode {mode}",))

        known, unspelled = spellable_phrases([*wanted, *prompted], self._recogniser)
        hot_words = [*options.hot_words, *known]
        check_scores(hot_words)
        return hot_words, Remarks(unspelled=tuple(unspelled), prompt=tuple(left_out))

    def decoding_in(self, language: str | None) -> Mapping[str, Any]:
        """Return the decode options of the server; a model that is asked for a language transcribes
        in that of the request.

        Raises:
            RefusedError: the model does not know the language.
        """
        languages = self._recogniser.recogniser.model.prompt_languages
        if not language or not languages:
            return self._options.decoding
        if language not in languages:
            raise RefusedError(f"language {language!r}: this model knows {', '.join(languages)}")

        return {**self._options.decoding, "language": language}


def _parse_channel(text: str) -> ChosenChannel:
    """Return the channel of a request.

    Raises:
        RefusedError: there is no such choice.
    """
    try:
        return parse_channel(text)
    except ValueError as error:
        raise RefusedError(f"channel: {error}") from None


def spellable_phrases(
    phrases: Sequence[str], recogniser: SpeechRecogniser
) -> tuple[list[str], list[str]]:
    """Return the phrases that the units can spell, and the others. They are not logged."""
    _, unknown = tokenize_phrases(phrases, recogniser.recogniser.tokenizer)
    left_out = set(unknown)
    known = [phrase for phrase in phrases if text_and_score(phrase)[0] not in left_out]
    return known, unknown


def _prompt_phrases(prompt: str, wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the phrases of a prompt that fit beside those of `hot_words`, and warnings about the
    others: OpenAI's prompts may be prose.
    """
    parts = map(str.strip, _BETWEEN_PHRASES.split(prompt))
    phrases = [phrase for phrase in dict.fromkeys(parts) if phrase and phrase not in wanted]
    short = [phrase for phrase in phrases if len(phrase) <= MOST_PHRASE_CHARACTERS]
    kept = fitting_phrases(short, wanted)
    warnings: list[str] = []
    if len(short) < len(phrases):
        warnings.append(
            f"prompt: left out {len(phrases) - len(short)} phrases of more than "
            f"{MOST_PHRASE_CHARACTERS} characters"
        )
    if len(kept) < len(short):
        warnings.append(
            f"prompt: left out {len(short) - len(kept)} phrases beyond the first {MOST_PHRASES} "
            f"phrases and {MOST_TOTAL_CHARACTERS} characters"
        )

    return kept, warnings


def format_answer(
    transcript: Transcript, remarks: Remarks, job: Job, recogniser: SpeechRecogniser
) -> web.Response:
    """Return the answer in the format of the request."""
    response_format = job.upload.response_format
    if response_format == "text":
        return web.Response(text=f"{transcript.text}\n")
    if response_format == "srt":
        return web.Response(text=f"{transcript.to_srt()}\n", content_type="application/x-subrip")
    if response_format == "vtt":
        return web.Response(text=f"{transcript.to_vtt()}\n", content_type="text/vtt")

    content = answer_content(transcript, remarks, job, recogniser)
    return web.Response(
        text=json.dumps(content, ensure_ascii=False), content_type="application/json"
    )


def answer_content(
    transcript: Transcript, remarks: Remarks, job: Job, recogniser: SpeechRecogniser
) -> dict[str, Any]:
    """Return the content of the answer as JSON."""
    content: dict[str, Any] = {"text": transcript.text}
    requested = job.upload.fields.get("language", "")
    if job.upload.response_format == "verbose_json":
        languages = [segment.language for segment in transcript.segments if segment.language]
        content = {
            "task": job.task,
            "language": languages[0] if languages else requested,
            "duration": round(transcript.seconds, 3),
            **content,
            "segments": [
                _segment_fields(number, segment, recogniser)
                for number, segment in enumerate(transcript.segments)
            ],
            "words": [word.to_dict() for word in transcript.words],
        }

    if job.upload.response_format == DIARIZED:
        content = {
            "task": job.task,
            "duration": round(transcript.seconds, 3),
            **content,
            "segments": [
                speaker_segment(number, segment, job.speakers)
                for number, segment in enumerate(transcript.segments)
            ],
        }

    content |= reason_field(transcript.reason)
    if remarks.warnings:
        content["warnings"] = remarks.warnings
    if remarks.unspelled:
        content["unspelled"] = remarks.unspelled
    if remarks.cut_short:
        content["cut_short"] = True

    return content


def delta_event(segments: Sequence[TranscriptSegment], duration: float) -> dict[str, Any]:
    """Return the event of the last segment; all texts together are the text of the recording.

    Args:
        segments: all that are recognised so far; with none the event says that the work begins.
        duration: of the recording, in seconds.
    """
    delta, seconds = "", 0.0
    if segments:
        previous = segments[-2] if len(segments) > 1 else None
        delta, seconds = added_text(previous, segments[-1]), round(segments[-1].end, 3)

    return {
        "type": "transcript.text.delta",
        "delta": delta,
        "seconds": seconds,
        "duration": round(duration, 3),
    }


def _segment_fields(
    number: int, segment: TranscriptSegment, recogniser: SpeechRecogniser
) -> dict[str, Any]:
    """Return a segment with the fields of OpenAI's API; null where our models have no such value."""
    symbols = recogniser.recogniser.tokenizer.symbols
    confidences = [token.confidence for token in segment.tokens if token.confidence is not None]
    log_probs = [math.log(max(confidence, 1e-30)) for confidence in confidences]
    all_known = len(log_probs) == len(segment.tokens)
    mean_log_prob = sum(log_probs) / max(1, len(log_probs)) if all_known else None
    text = segment.text.encode()
    compression = len(text) / len(zlib.compress(text)) if text else 0.0
    return {
        "id": number,
        "seek": round(segment.start * 100),
        **segment.to_dict(),
        "tokens": [symbols[token.text] for token in segment.tokens],
        "temperature": 0.0,
        "avg_logprob": mean_log_prob,
        "compression_ratio": compression,
        "no_speech_prob": segment.no_speech_probability,
        "cues": [cue_fields(cue) for cue in segment.cues()],
    }
