"""How long a client waits for the texts of its stream."""

from __future__ import annotations

import time

from wenet_uio.addons.serve.metrics import Metrics


class StreamLatencies:
    """Measures one stream. Each latency is observed once."""

    def __init__(self, metrics: Metrics) -> None:
        """Begin with nothing heard."""
        self._metrics = metrics
        self._first_audio: float | None = None
        self._waits_for_partial = True
        self._end: float | None = None

    def hear(self) -> None:
        """Note that audio has come."""
        if self._first_audio is None:
            self._first_audio = time.monotonic()

    def show_partial(self) -> None:
        """Note that a text goes to the client."""
        if self._first_audio is not None and self._waits_for_partial:
            self._waits_for_partial = False
            self._metrics.first_partial_seconds.observe(time.monotonic() - self._first_audio)

    def end(self) -> None:
        """Note that the client has sent all its audio."""
        if self._end is None:
            self._end = time.monotonic()

    def finish(self) -> None:
        """Note that the last text goes to the client."""
        if self._end is not None:
            seconds = time.monotonic() - self._end
            self._metrics.final_seconds.labels("stream").observe(seconds)
