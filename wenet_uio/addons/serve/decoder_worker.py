"""Processes that decode one recording of a client each, and do nothing else.

A decoder that crashes ends its process, and no other one. The process holds no other recording, no
token and no key, and may use some memory and processor time only.

The server starts `main` once. For each recording `main` forks a process that waits for the end of the
process that decodes, tells the server how it ended, and ends it when the server has no need of it.
To the process that decodes the server sends the recording, and then requests as JSON: the
arguments of `audio_info`, or of `AudioReader.read`. Each answer is JSON, and of samples their bytes
after it. Nothing is pickled, so the server does not have to trust this process.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from wenet_uio.audio.decoders import AudioError, Channel
from wenet_uio.audio.read import AudioReader, audio_info
from wenet_uio.base.crashes import HANDLED

MOST_BYTES = 1 << 30
"""Bytes of memory that decoding may use besides the recording."""
MOST_CPU_SECONDS = 3600
"""Processor time of all reading of a recording. Hours of audio take some minutes."""
OF_SERVER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that may reach the group of the server. These processes end when it closes its connections."""
MEMORY = Path("/proc/self/statm")


def main() -> None:
    """Fork for each pair of descriptors that arrives on standard input: the connection of a recording,
    and a pipe for the exit status. End when the server closes it.
    """
    for number in OF_SERVER:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are forked here

    with socket.socket(fileno=os.dup(0)) as server:
        while True:
            _, descriptors, _, _ = socket.recv_fds(server, 1, 2)
            if not descriptors:
                return
            connection, status = descriptors

            if not os.fork():
                server.close()
                os.close(0)
                watch_decoder(connection, status)
                os._exit(0)

            os.close(connection)
            os.close(status)


def watch_decoder(connection: int, status: int) -> None:
    """Decode in a forked process, and write its exit status to a pipe; kill it if the server closes the
    pipe before.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if not process:
        os.close(status)
        decode_and_exit(connection)

    os.close(connection)

    def end_with_server() -> None:
        closed = select.poll()
        closed.register(status, 0)  # only its errors: nobody reads
        closed.poll()
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    threading.Thread(target=end_with_server, daemon=True).start()
    exitcode = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(BrokenPipeError):
        os.write(status, str(exitcode).encode())


def decode_and_exit(connection: int) -> None:
    """Decode in this process, which ends without the clean-up of the process that it was forked from."""
    exitcode = 1
    try:
        decode_recording(Connection(connection))
        exitcode = 0
    finally:
        os._exit(exitcode)


def decode_recording(connection: Connection) -> None:
    """Answer requests about one recording until the server closes the connection."""
    with suppress(EOFError, ConnectionError):
        encoded = connection.recv_bytes()
        limit_process()

        # A reader goes forward only: tracks of several channels are read at several places.
        readers: defaultdict[Channel | None, AudioReader] = defaultdict(
            lambda: AudioReader(encoded)
        )
        while True:
            request = json.loads(connection.recv_bytes())
            answer, samples = answer_request(encoded, readers, request)
            connection.send_bytes(json.dumps(answer).encode())
            if samples is not None:
                connection.send_bytes(np.ascontiguousarray(samples).data.cast("B"))


def limit_process() -> None:
    """Limit the memory and the processor time of this process; a crash prints and writes nothing."""
    if MEMORY.exists():
        data_pages = int(MEMORY.read_text().split()[5])
        most = data_pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_SECONDS, MOST_CPU_SECONDS + 60))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)


def answer_request(
    encoded: bytes, readers: defaultdict[Channel | None, AudioReader], request: dict[str, Any]
) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the answer to a request, and the samples if the request is for some."""
    try:
        if "most_seconds" in request:
            return asdict(audio_info(encoded, **request)), None

        samples, _ = readers[request["channel"]].read(**request)
        return {"shape": samples.shape}, samples
    except AudioError as error:
        return {"error": str(error)}, None
    except MemoryError:
        return {"error": f"decoding needs more than {MOST_BYTES >> 20} MiB of memory"}, None


if __name__ == "__main__":
    main()
