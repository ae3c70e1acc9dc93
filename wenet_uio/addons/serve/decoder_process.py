"""Recordings of clients, each decoded in a process of its own; see decoder_worker.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Pipe
from typing import Any, BinaryIO

import numpy as np

from wenet_uio.addons.serve.decoder_worker import MOST_BYTES
from wenet_uio.addons.serve.messages import LimitError
from wenet_uio.audio.decoders import AudioError, AudioInfo, Excerpt, Opened
from wenet_uio.audio.interruption import CHECK_SECONDS, check_interruption
from wenet_uio.audio.read import describe_crash
from wenet_uio.base.crashes import describe_exit, has_crashed

MOST_ANSWER_BYTES = 1 << 20
WORKER = "wenet_uio.addons.serve.decoder_worker"
VARIABLES = ("PATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LD_PRELOAD", "LANG")
"""Variables of the environment that the processes get. Others may be secrets, such as the token."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class DecoderProcesses:
    """Decodes recordings in processes of their own. They are forked from a process that this one starts
    and that knows nothing of a client. Any thread may use it.
    """

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._forker: subprocess.Popen[bytes] | None = None
        """The process that forks; None before the first recording, and after `stop`."""
        self._to_forker: socket.socket | None = None

    def start(self) -> None:
        """Start the process that forks, unless it runs."""
        with self._one_at_a_time:
            self._running_forker()

    def stop(self) -> None:
        """End the process that forks. Those of recordings end when nobody needs them any more."""
        with self._one_at_a_time:
            if self._forker is not None and self._to_forker is not None:
                self._to_forker.close()
                self._forker.wait()
            self._forker = self._to_forker = None

    @contextmanager
    def decode(self, encoded: bytes, most_seconds: float | None = None) -> Iterator[Opened]:
        """Decode a recording in a process of its own, which ends with the block.

        Args:
            most_seconds: see `audio_info`.

        Raises:
            AudioError: the recording cannot be read, or crashes the decoder.
            LimitError: the process was killed.
        """
        connection, of_worker = Pipe()
        status, status_of_worker = os.pipe()
        try:
            with self._one_at_a_time:
                descriptors = [of_worker.fileno(), status_of_worker]
                socket.send_fds(self._running_forker(), [b"."], descriptors)
        finally:
            of_worker.close()
            os.close(status_of_worker)

        with connection, os.fdopen(status, "rb") as status_file:
            decoder = ProcessDecoder(connection, status_file, encoded, most_seconds)
            del encoded  # the other process has it now
            yield Opened(decoder)

    def _running_forker(self) -> socket.socket:
        """Return the connection to the process that forks, which is started if it does not run."""
        if self._forker is None or self._forker.poll() is not None or self._to_forker is None:
            self._to_forker, of_forker = socket.socketpair()
            kept = {name: os.environ[name] for name in VARIABLES if name in os.environ}
            with of_forker:
                self._forker = subprocess.Popen(
                    [sys.executable, "-m", WORKER],
                    stdin=of_forker.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={**kept, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
                )

        return self._to_forker


class ProcessDecoder:
    """Reads a recording that another process decodes. Used by one thread."""

    def __init__(
        self,
        connection: Any,
        status: BinaryIO,
        encoded: bytes,
        most_seconds: float | None = None,
    ) -> None:
        """Send the recording to the process.

        Args:
            connection: of a pipe of multiprocessing.
            status: a file that tells the exit status when the process has ended.

        Raises:
            AudioError, LimitError: see `DecoderProcesses.decode`.
        """
        self._connection, self._status = connection, status
        self._exitcode: int | None = None
        self._send(encoded)
        self._info = AudioInfo(**self._ask({"most_seconds": most_seconds}))
        self.sample_rate = self._info.sample_rate

    def info(self) -> AudioInfo:
        """Return the length and format."""
        return self._info

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment as float32 on the scale of int16; of all
        channels (samples, channels).

        Raises:
            AudioError, LimitError: see `DecoderProcesses.decode`.
        """
        start, end, channel, _ = excerpt
        answer = self._ask({"start": start, "end": end, "channel": channel})
        samples = bytearray(self._receive(MOST_BYTES))
        return np.frombuffer(samples, np.float32).reshape(answer["shape"])

    def close(self) -> None:
        """Do nothing: the process ends with the block of `DecoderProcesses.decode`."""

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        self._send(json.dumps(request).encode())
        answer = json.loads(self._receive(MOST_ANSWER_BYTES))
        if "error" in answer:
            raise AudioError(answer["error"])
        return answer

    def _send(self, message: bytes) -> None:
        try:
            self._connection.send_bytes(message)
        except ConnectionError:
            raise self._why_ended() from None

    def _receive(self, most: int) -> bytes:
        """Return the next message, of at most `most` bytes."""
        try:
            while not self._connection.poll(CHECK_SECONDS):
                check_interruption()
            return self._connection.recv_bytes(most)
        except (EOFError, ConnectionError):
            raise self._why_ended() from None

    def _why_ended(self) -> Exception:
        """Return the error that says why the process has ended."""
        if self._exitcode is None:
            self._exitcode = int(self._status.read() or -signal.SIGKILL)

        if has_crashed(self._exitcode):
            return AudioError(describe_crash(describe_exit(self._exitcode)))
        return LimitError(
            "memory", "the process that decodes was killed; did memory run out? Try again later"
        )
