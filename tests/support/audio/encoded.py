"""Recordings in many formats, made by FFmpeg, and FFmpeg's decoding of any bytes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

RATE = 16000
HAS_FFMPEG = shutil.which("ffmpeg") is not None
OPTIONS = {
    "plain.wav": (),
    "rf64.wav": ("-rf64", "always"),
    "g722.wav": ("-c:a", "g722"),
    "gsm.wav": ("-ar", "8000", "-c:a", "libgsm_ms"),
    "a.w64": (),
    "a.flac": (),
    "vorbis.ogg": ("-c:a", "libvorbis"),
    "opus.opus": ("-c:a", "libopus"),
    "xing.mp3": ("-q:a", "4"),
    "vbr.mp3": ("-q:a", "4", "-write_xing", "0"),
    "quiet.mp3": ("-q:a", "9", "-write_xing", "0"),
    "cbr.mp3": ("-b:a", "64k", "-write_xing", "0"),
    "a.m4a": (),
    "a.aac": (),
    "a.webm": ("-c:a", "libopus"),
    "a.wma": (),
    "a.wv": (),
    "a.tta": (),
    "a.ac3": (),
    "a.ts": (),
    "a.flv": ("-ar", "22050"),
    "a.avi": (),
}
"""{name of a file: options of FFmpeg}."""


@cache
def source(seconds: float = 6.0, seed: int = 0) -> np.ndarray:
    """Noise that is there and not there by turns, so that a variable bit rate varies, and a tone;
    on the scale of int16.
    """
    times = np.arange(int(RATE * seconds)) / RATE
    noise = np.random.default_rng(seed).normal(0, 0.1, len(times))
    sound = noise * (np.sin(2 * np.pi * times / 1.3) > 0)
    sound += 0.1 * np.sin(2 * np.pi * (200 + 60 * seed) * times)
    return np.clip(np.rint(32767 * sound), -32768, 32767).astype(np.int16)


@cache
def encoded(name: str, seconds: float = 6.0, seed: int = 0) -> bytes | None:
    """A recording in a format; None if this FFmpeg cannot write it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        raw = ("-f", "s16le", "-ar", str(RATE), "-ac", "1", "-i", "-")
        command = ["ffmpeg", "-v", "error", "-threads", "1", *raw, *OPTIONS[name], str(path)]
        done = subprocess.run(command, input=source(seconds, seed).tobytes(), capture_output=True)
        return None if done.returncode else path.read_bytes()


@lru_cache(4)
def by_ffmpeg(data: bytes) -> np.ndarray:
    """Samples at RATE as FFmpeg decodes them, on the scale of int16; empty if it cannot."""
    target = ("-ac", "1", "-ar", str(RATE), "-f", "s16le", "-")
    done = subprocess.run(
        ["ffmpeg", "-v", "quiet", "-threads", "1", "-i", "-", *target],
        input=data,
        capture_output=True,
    )
    return np.frombuffer(done.stdout, np.int16).astype(np.float32)


def version() -> str:
    """The version of FFmpeg, such as 5.1."""
    printed = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True).stdout
    return ".".join(printed.split()[2].split(".")[:2])
