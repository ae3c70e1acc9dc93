"""Counters of the server, for /metrics (Prometheus)."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

STEP_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
LATENCIES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds."""
REAL_TIME_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0)
STREAMS_OF_A_STEP = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one server. The names are part of the interface: dashboards use them."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.connections = Gauge("wenet_uio_connections", "Open connections", registry=registry)
        self.clients = Gauge("wenet_uio_clients", "Open WebSockets with a place", registry=registry)
        self.streams = Counter("wenet_uio_streams", "Streams that were started", registry=registry)
        self.open_streams = Gauge(
            "wenet_uio_open_streams", "Streams that are open", registry=registry
        )
        self.utterances = Counter(
            "wenet_uio_utterances", "Ended utterances of streams", registry=registry
        )
        self.audio = Counter(
            "wenet_uio_audio_seconds", "Audio that was received", ["kind"], registry=registry
        )
        self.uploads = Gauge(
            "wenet_uio_uploads", "Recordings in work or waiting", registry=registry
        )
        self.transcriptions = Counter(
            "wenet_uio_transcriptions", "Answers to POST requests", ["status"], registry=registry
        )
        self.refused = Counter(
            "wenet_uio_refused", "Refused or ended by a limit", ["reason"], registry=registry
        )
        self.step_seconds = Histogram(
            "wenet_uio_step_seconds",
            "Time of a step of the streams",
            buckets=STEP_SECONDS,
            registry=registry,
        )
        self.step_streams = Histogram(
            "wenet_uio_step_streams",
            "Streams that a step encodes together",
            buckets=STREAMS_OF_A_STEP,
            registry=registry,
        )
        self.first_partial_seconds = Histogram(
            "wenet_uio_first_partial_seconds",
            "From the first audio of a stream to its first text",
            buckets=LATENCIES,
            registry=registry,
        )
        self.final_seconds = Histogram(
            "wenet_uio_final_seconds",
            "From the end of a stream or the last byte of a recording to the last text",
            ["kind"],
            buckets=LATENCIES,
            registry=registry,
        )
        self.queue_seconds = Histogram(
            "wenet_uio_queue_seconds",
            "Time that a chunk of a stream, or a batch of a recording, waits for the model",
            ["kind"],
            buckets=LATENCIES,
            registry=registry,
        )
        self.real_time_factor = Histogram(
            "wenet_uio_real_time_factor",
            "Seconds of work for a second of audio: of a step of all streams, of a recording",
            ["kind"],
            buckets=REAL_TIME_FACTORS,
            registry=registry,
        )
        self.waiting = Gauge(
            "wenet_uio_waiting_seconds",
            "Most audio that waits in a stream, after the last step",
            registry=registry,
        )

    def text(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
