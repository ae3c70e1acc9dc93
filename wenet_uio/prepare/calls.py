"""NIST sphere files of telephone corpora: each side of a call as a wav file, and its turns cut and joined."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

import numpy as np
import soundfile

from wenet_uio.audio.read import AudioError
from wenet_uio.executor import Executor
from wenet_uio.files import written_aside
from wenet_uio.prepare.corpus_parts import Recording

HEADER = 1024
"""Bytes of a sphere header."""
SIDES = "AB"
"""Of a call, by channel."""
LONGEST = 20.0
"""Seconds of turns that are joined, from the first one's start: what the configs of these corpora train on."""


class Turn(NamedTuple):
    """What one side of a call says at a time."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""
    text: str | None
    """None: speech that nobody wrote down for sure."""


def joined(turns: Iterable[Turn], min_seconds: float) -> Iterator[Turn]:
    """Turns of one side, in their order; one shorter than `min_seconds` is joined with the next as long as that helps.

    Nothing is joined over a turn without text, nor to more than 20 seconds. Turns without text are left out.
    """
    piece: Turn | None = None
    for turn in turns:
        if piece and turn.text and piece.end - piece.start < min_seconds and turn.end - piece.start <= LONGEST:
            piece = Turn(piece.start, turn.end, f"{piece.text} {turn.text}")
            continue
        if piece:
            yield piece
        piece = turn if turn.text else None
    if piece:
        yield piece


def recordings_of(call: str, side: str, turns: Iterable[Turn], folder: Path, min_seconds: float) -> Iterator[Recording]:
    """What one side of a call says, joined to pieces of `min_seconds`, as utterances of its wav file in `folder`."""
    wav = side_wav(folder, call, side)
    for turn in joined(turns, min_seconds):
        key = f"{call}_{side}_{round(turn.start * 100):06d}_{round(turn.end * 100):06d}"
        yield Recording(key, wav, turn.text, turn.start, turn.end)


def side_wav(folder: Path, call: str, side: str) -> Path:
    """Where `sides_to_wav` puts a side of a call."""
    return folder / f"{call}_{side}.wav"


def sides_to_wav(spheres: Sequence[Path], folder: Path, executor: Executor) -> None:
    """Write both sides of calls as wav files in `folder`; a wav that is newer than its sphere file is kept."""
    jobs = [(sphere, folder) for sphere in spheres]
    for _ in executor.map(_sides_of, jobs, "sphere to wav", len(jobs), unit="call"):
        pass


def _sides_of(job: tuple[Path, Path]) -> None:
    sphere, folder = job
    for channel, side in enumerate(SIDES):
        channel_to_wav(sphere, channel, side_wav(folder, sphere.stem, side))


def channel_to_wav(sphere: Path, channel: int, wav: Path) -> None:
    """Write one channel (counted from 0) of a sphere file as 16-bit wav; a wav that is newer is kept.

    libsndfile decodes PCM, mu-law and A-law. Audio compressed with shorten is read through NIST's and LDC's program
    sph2pipe, where it is on PATH.

    Raises:
        AudioError: not a sphere file, without that channel, or compressed with shorten and no sph2pipe is there.
    """
    if wav.exists() and wav.stat().st_mtime >= sphere.stat().st_mtime:
        return
    with open(sphere, "rb") as file:
        head = file.read(HEADER)
    if not head.startswith(b"NIST_1A"):
        raise AudioError(f"{sphere}: not a sphere file (it does not begin with NIST_1A)")
    with written_aside(wav) as out:
        if b"shorten" in head:
            out.write(_sph2pipe(sphere, channel))
        else:
            samples, rate = _decoded(sphere)
            if channel >= samples.shape[1]:
                raise AudioError(f"{sphere}: channel {channel} asked for, it has {samples.shape[1]} (counted from 0)")
            soundfile.write(out, samples[:, channel], rate, "PCM_16", format="WAV")


def _decoded(sphere: Path) -> tuple[np.ndarray, int]:
    """Samples (samples, channels) int16 and their rate in Hz."""
    try:
        return soundfile.read(str(sphere), dtype="int16", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{sphere}: {error.error_string}") from None


def _sph2pipe(sphere: Path, channel: int) -> bytes:
    program = which("sph2pipe")
    if program is None:
        raise AudioError(
            f"{sphere}: compressed with shorten, which needs sph2pipe on PATH; "
            "get it at https://github.com/burrmill/sph2pipe"
        )
    done = subprocess.run(
        [program, "-f", "wav", "-p", "-c", str(channel + 1), str(sphere)], capture_output=True, check=False
    )
    if done.returncode:
        raise AudioError(f"{sphere}: sph2pipe says: {' '.join(done.stderr.decode(errors='replace').split())}")
    return done.stdout
