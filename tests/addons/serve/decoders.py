"""The processes in which a server decodes recordings."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.addons.serve.decoder_process import DecoderProcesses


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    try:
        return [int(child) for child in listed.read_text().split()]
    except OSError:  # it has ended
        return []


def decoders(processes: DecoderProcesses) -> list[int]:
    """The processes that decode a recording now."""
    forker = processes._forker
    assert forker is not None, "no recording was decoded yet"
    return [decoder for watcher in children(forker.pid) for decoder in children(watcher)]
