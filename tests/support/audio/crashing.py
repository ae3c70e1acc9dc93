"""A decoder that ends its process when the audio of a marked file is decoded."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import soundfile

from wenet_uio.audio import decoders

MARK = 12345
"""First sample of marked audio."""


def mark(wav: str | Path) -> None:
    """Make the decoder crash at this file."""
    samples, rate = soundfile.read(wav, dtype="int16")
    samples[0] = MARK
    soundfile.write(wav, samples, rate, subtype="PCM_16")


def crash_at_marked(
    monkeypatch: pytest.MonkeyPatch, number: int = signal.SIGSEGV, gate: Path | None = None
) -> None:
    """Let the decoder of this process, and of its children, send itself a signal at marked audio
    once `gate` exists.
    """
    read = decoders.WavDecoder.read

    def fatal(decoder: decoders.WavDecoder, excerpt: Any) -> Any:
        waveform = read(decoder, excerpt)
        if waveform[0] == MARK:
            while gate is not None and not gate.exists():
                time.sleep(0.01)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), number)
        return waveform

    monkeypatch.setattr(decoders.WavDecoder, "read", fatal)
