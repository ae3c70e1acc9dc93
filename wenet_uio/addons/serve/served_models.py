"""The model that is served, and older ones that streams and recordings still use."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wenet_uio.addons.listen.endpoint import EndpointRule
from wenet_uio.addons.listen.live import LiveStream, advance
from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.addons.serve.messages import HotWordsError, Start
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.addons.serve.pulse import Pulse
from wenet_uio.addons.serve.transcriptions import Transcriptions, spellable_phrases
from wenet_uio.base.messages import listed

PAUSE = "rule2"
"""Name of the rule by which a pause after words ends an utterance."""
RETIRE_SECONDS = 0.5
"""Seconds between two looks whether somebody uses an old model."""
RETIRE_LOOKS = 20
"""Looks whether an old model that nobody uses has left the memory."""

log = logging.getLogger(__name__)


class ServedModel:
    """A model with the recordings that it transcribes. Streams and recordings keep theirs when
    another one replaces it.
    """

    def __init__(
        self, recogniser: SpeechRecogniser, options: ServeOptions, metrics: Metrics
    ) -> None:
        self.recogniser = recogniser
        self.transcriptions = Transcriptions(recogniser, options, metrics)
        self._options = options
        self._sessions = 0

    @property
    def is_used(self) -> bool:
        """Whether a session is open, or a recording is in work."""
        return bool(self._sessions or self.transcriptions.unanswered)

    @contextmanager
    def used_by_session(self) -> Iterator[None]:
        """Count a session of a client for the time of the block."""
        self._sessions += 1
        try:
            yield
        finally:
            self._sessions -= 1

    def warm_up(self) -> None:
        """Recognise a second of noise, with `transcribe` and as a stream, so that no client waits
        for what is made once.

        The log has what a developer can change; the page says what it means for a visitor.

        Raises:
            ValueError: an option is wrong for the model.
        """
        if self.recogniser.obstacle:
            log.info(
                "streams: the newest window is decoded again and again, so texts come later: %s",
                self.recogniser.obstacle,
            )

        rate = self.recogniser.sample_rate
        noise = np.random.default_rng(0).normal(0, 300, rate).astype(np.int16)
        self.recogniser.transcribe(samples=noise, sample_rate=rate, **self._options.transcribing)

        stream, _ = self.open_stream(Start())
        stream.push(noise)
        stream.end()
        while not stream.finished:
            advance([stream])

    def open_stream(self, start: Start) -> tuple[LiveStream, list[str]]:
        """Open a stream with the options of the server and those of the client.

        Returns:
            The stream, and warnings for the client.

        Raises:
            RefusedError: the units can spell none of the client's hot words, their scores differ
                too much, or the model does not know the language.
            ValueError: the model does not support an option.
        """
        options: dict[str, Any] = {**self._options.transcribing, **self._options.streaming}
        if start.hot_words and not spellable_phrases(start.hot_words, self.recogniser)[0]:
            raise HotWordsError(f"the units can spell no phrase: {listed(start.hot_words, 5)}")

        options["hot_words"], remarks = self.transcriptions.choose_hot_words(
            start.hot_words, start.prompt
        )
        options["decoding"] = self.transcriptions.decoding_in(start.language)
        if start.hot_word_score is not None:
            options["hot_word_score"] = start.hot_word_score

        endpoints = dict(self._options.endpoints)
        if start.end_silence is not None:
            endpoints[PAUSE] = EndpointRule(needs_words=True, silence=start.end_silence)

        stream = self.recogniser.live(
            sample_rate=start.sample_rate,
            endpoints=endpoints,
            nbest=start.nbest,
            **options,
        )
        return stream, remarks.warnings


class ServedModels:
    """The current model, and older ones until nobody uses them. Used by the event loop."""

    def __init__(
        self, recogniser: SpeechRecogniser, options: ServeOptions, metrics: Metrics
    ) -> None:
        self.current = ServedModel(recogniser, options, metrics)
        self._all = [self.current]
        self._options, self._metrics = options, metrics
        self._calm: threading.Event | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    def start(self, calm: threading.Event) -> None:
        """Start threads and processes of recordings.

        Args:
            calm: set while no stream waits for the model.
        """
        self._calm = calm
        self.current.transcriptions.start(calm)

    async def replace(self, recogniser: SpeechRecogniser) -> None:
        """Use another model for new streams and recordings; those in work keep theirs.

        Raises:
            ValueError: an option is wrong for the model; the old one stays.
        """
        model = ServedModel(recogniser, self._options, self._metrics)
        await asyncio.to_thread(model.warm_up)

        gc.unfreeze()  # as long as the old model is frozen, it is no garbage
        old, self.current = self.current, model
        if self._calm is not None:
            model.transcriptions.start(self._calm)
        self._all.append(model)
        self._retiring.add(task := asyncio.create_task(self._retire(old)))
        task.add_done_callback(self._retiring.discard)

    async def _retire(self, old: ServedModel) -> None:
        """Wait until nobody uses an old model, and let it go."""
        while old.is_used:
            await asyncio.sleep(RETIRE_SECONDS)

        self._all.remove(old)
        old.transcriptions.close()
        recogniser = weakref.ref(old.recogniser)
        del old

        # Tasks of the last client may still be at their end; what is kept for good is never let go.
        for _ in range(RETIRE_LOOKS):
            await asyncio.sleep(RETIRE_SECONDS)
            await asyncio.to_thread(gc.collect)
            if recogniser() is None:
                break
        gc.freeze()

    def close(self) -> None:
        """End threads and processes of all models."""
        for task in self._retiring:
            task.cancel()
        for model in self._all:
            model.transcriptions.close()

    @property
    def unanswered(self) -> int:
        """Recordings of all models in work, or arriving."""
        return sum(model.transcriptions.unanswered for model in self._all)

    @property
    def busy(self) -> int:
        """Recordings of all models in work."""
        return sum(model.transcriptions.busy for model in self._all)

    @property
    def pulses(self) -> list[Pulse]:
        """Those of the threads of all models."""
        return [pulse for model in self._all for pulse in model.transcriptions.pulses]


def keep_for_good() -> None:
    """Leave out the model, and all else that is there, when garbage is collected.

    Searching a model again and again would take time from the streams.
    """
    gc.collect()
    gc.freeze()
