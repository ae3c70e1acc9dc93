"""NIST sphere files of telephone corpora: each channel as a wav file, which can be cut by time."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which

import soundfile

from wenet_uio.dataset.audio import AudioError
from wenet_uio.files import written_aside

HEADER = 1024
"""Bytes of a sphere header."""


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


def _decoded(sphere: Path) -> tuple:
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
