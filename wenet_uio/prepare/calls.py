"""Write the sides of telephone calls in NIST sphere files as wav; join short turns of a side."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

import soundfile

from wenet_uio.audio.decoders import AudioError
from wenet_uio.base.executor import Executor
from wenet_uio.base.files import written_aside
from wenet_uio.prepare.corpus_parts import Recording

HEADER_BYTES = 1024
SIDES = "AB"
"""Names of the two sides of a call, in the order of the channels."""
LONGEST = 20.0
"""Turns are joined to at most this many seconds, which is below `max_length` (2048 frames) in the
configs of these corpora."""


class Turn(NamedTuple):
    """One turn of one side of a call."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""
    text: str | None
    """None if the words are uncertain."""


class JoinedTurn(NamedTuple):
    """One or more consecutive turns of one side, which become an utterance."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""
    text: str


def join_turns(turns: Iterable[Turn], min_seconds: float) -> Iterator[JoinedTurn]:
    """Join turns of one side that are shorter than `min_seconds` with the next ones, up to 20 s.

    Turns without text are left out, and turns before and after them are not joined.

    Args:
        turns: turns of one side, ordered by time.
    """
    utterance: JoinedTurn | None = None
    for turn in turns:
        if utterance and turn.text:
            is_short = utterance.end - utterance.start < min_seconds
            if is_short and turn.end - utterance.start <= LONGEST:
                text = f"{utterance.text} {turn.text}"
                utterance = JoinedTurn(utterance.start, turn.end, text)
                continue

        if utterance:
            yield utterance
        utterance = JoinedTurn(turn.start, turn.end, turn.text) if turn.text else None

    if utterance:
        yield utterance


def recordings_of(
    call: str, side: str, turns: Iterable[Turn], folder: Path, min_seconds: float
) -> Iterator[Recording]:
    """Yield utterances of one side of a call: its turns, as of `join_turns`.

    They are parts of the wav file that `side_wav` names.
    """
    wav = side_wav(folder, call, side)
    for turn in join_turns(turns, min_seconds):
        key = f"{call}_{side}_{round(turn.start * 100):06d}_{round(turn.end * 100):06d}"
        yield Recording(key, wav, turn.text, turn.start, turn.end)


def side_wav(folder: Path, call: str, side: str) -> Path:
    """Return the path of the wav file that `sides_to_wav` writes for a side of a call."""
    return folder / f"{call}_{side}.wav"


def sides_to_wav(spheres: Sequence[Path], folder: Path, executor: Executor) -> None:
    """Write both sides of calls as wav files in `folder`.

    Wav files that are newer than their sphere file are kept.
    """
    jobs = [(sphere, folder) for sphere in spheres]
    for _ in executor.map(_write_sides, jobs, "sphere to wav", len(jobs), unit="call"):
        pass


def _write_sides(job: tuple[Path, Path]) -> None:
    """Write both sides of a call; a job is a sphere file and the folder of the wav files."""
    sphere, folder = job
    for channel, side in enumerate(SIDES):
        channel_to_wav(sphere, channel, side_wav(folder, sphere.stem, side))


def channel_to_wav(sphere: Path, channel: int, wav: Path) -> None:
    """Write one channel (from 0) of a sphere file as 16-bit wav.

    A wav file that is newer is kept.

    PCM, mu-law and A-law are decoded by libsndfile. Audio compressed with shorten needs the program
    sph2pipe on PATH.

    Raises:
        AudioError: not a sphere file, the channel does not exist, or audio is compressed with
            shorten and sph2pipe is missing or fails.
    """
    if wav.exists() and wav.stat().st_mtime >= sphere.stat().st_mtime:
        return

    with open(sphere, "rb") as file:
        head = file.read(HEADER_BYTES)

    if not head.startswith(b"NIST_1A"):
        raise AudioError(f"{sphere}: not a sphere file (it does not begin with NIST_1A)")

    with written_aside(wav) as out:
        if b"shorten" in head:
            out.write(_run_sph2pipe(sphere, channel))
        else:
            try:
                samples, rate = soundfile.read(str(sphere), dtype="int16", always_2d=True)
            except soundfile.LibsndfileError as error:
                raise AudioError(f"{sphere}: {error.error_string}") from None

            if channel >= samples.shape[1]:
                raise AudioError(
                    f"{sphere}: no channel {channel} (counted from 0), the file has "
                    f"{samples.shape[1]}"
                )
            soundfile.write(out, samples[:, channel], rate, "PCM_16", format="WAV")


def _run_sph2pipe(sphere: Path, channel: int) -> bytes:
    """Return one channel of audio compressed with shorten, as wav."""
    program = which("sph2pipe")
    if program is None:
        raise AudioError(
            f"{sphere}: compressed with shorten, which needs sph2pipe on PATH; "
            "get it at https://github.com/burrmill/sph2pipe"
        )

    completed = subprocess.run(
        [program, "-f", "wav", "-p", "-c", str(channel + 1), str(sphere)],
        capture_output=True,
        check=False,
    )
    if completed.returncode:
        message = " ".join(completed.stderr.decode(errors="replace").split())
        raise AudioError(f"{sphere}: sph2pipe says: {message}")

    return completed.stdout
