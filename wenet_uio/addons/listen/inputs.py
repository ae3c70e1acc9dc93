"""Audio of any form as a source that the package can read: a path, encoded bytes, or samples."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wenet_uio.addons.listen.results import NO_SPEECH
from wenet_uio.addons.listen.speech import channel_levels
from wenet_uio.addons.listen.tracks import Tracks
from wenet_uio.audio.decoders import AudioError, Opened, Samples
from wenet_uio.audio.lost_sound import SILENT, is_silent
from wenet_uio.audio.read import Source, audio_info
from wenet_uio.dataset.storage.objects import is_remote, open_whole

MOST_CHANNELS = 64
"""Columns of an array; more are a transposed array."""
ADVICE = "choose one, mix or each"

log = logging.getLogger(__name__)


class Input:
    """A recording: a path or URL, a file object, encoded bytes, samples, or an opened recording."""

    def __init__(self, audio: Any, number: int = 0, sample_rate: int | None = None) -> None:
        """`audio` is read when `open` is called.

        Args:
            number: place among the inputs, for the name in messages.
            sample_rate: in Hz; None unless `audio` is an array of samples.

        Raises:
            TypeError: `audio` is none of these.
            ValueError: an array has the wrong shape or type, or has no sample rate.
        """
        self._audio = audio
        self._opened: Source | None = None
        self.seconds = 0.0
        """Length of the audio; known after `close`."""
        self.reason: str | None = None
        """See Transcript.reason; known after `close`."""
        self.name = f"input {number}"

        if sample_rate is not None:
            self._audio = make_samples(audio, sample_rate)
        elif isinstance(audio, (str, os.PathLike)):
            self.name = os.fspath(audio)
        elif hasattr(audio, "read"):
            self.name = str(getattr(audio, "name", self.name))
        elif isinstance(audio, np.ndarray) or type(audio).__module__.split(".")[0] == "torch":
            raise ValueError(
                "an array of samples needs its sample rate: transcribe(samples=array, "
                "sample_rate=16000)"
            )
        elif not isinstance(audio, (bytes, bytearray, memoryview, Opened)):
            raise TypeError(
                "audio: expected a path, a file object, bytes or samples, found "
                f"{type(audio).__name__}"
            )

    def open(self) -> Source:
        """Return samples, the path of a regular file, or all bytes of anything else; read once.

        Raises:
            OSError: it cannot be read.
            AudioError: a file object gives text instead of bytes.
        """
        if self._opened is None:
            self._opened = self._read_source()
        return self._opened

    def close(self, tracks: Tracks, *, has_words: bool, has_speech: bool) -> None:
        """Set `seconds` and `reason`, log a warning if the audio is cut short or sound was not heard,
        and free the bytes.

        Args:
            tracks: what was transcribed.
            has_words: words were recognised. If there are none, silent channels are logged.
            has_speech: somebody speaks.
        """
        self.reason = None if has_speech else NO_SPEECH
        source = self.open()
        info = audio_info(source)
        self.seconds = info.num_samples / info.sample_rate
        unheard = "" if has_words else _silence_warning(source, tracks)
        for warning in (info.cut_short, unheard or _lost_sound_warning(tracks)):
            if warning:
                log.warning("warning: %s: %s", self.name, warning)

        self._opened = None

    def _read_source(self) -> Source:
        """Return what decoders read: a local path, the bytes of anything else, or samples."""
        audio: Any = self._audio
        if hasattr(audio, "read"):
            audio = audio.read()
            if isinstance(audio, str):
                raise AudioError("the file object gives text; open the file in mode 'rb'")

        if isinstance(audio, (Samples, Opened)):
            return audio
        if isinstance(audio, (bytes, bytearray, memoryview)):
            return bytes(audio)
        if is_remote(audio):
            with open_whole(audio) as file:
                return file.read()

        path = Path(audio)
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe
            return path.read_bytes()

        return str(audio)


def make_inputs(audio: Any, samples: Any, sample_rate: int | None) -> tuple[list[Input], bool]:
    """Return the inputs, and whether they are several.

    Raises:
        TypeError, ValueError: see `Input`; or both or none of `audio` and `samples` are given.
    """
    if (audio is None) == (samples is None):
        raise ValueError("give either audio (a path, a file object or bytes) or samples=")
    if (samples is None) != (sample_rate is None):
        raise ValueError("samples= and sample_rate= belong together")

    recordings = audio if samples is None else samples
    several = isinstance(recordings, (list, tuple))
    in_a_list = recordings if several else [recordings]
    inputs = [Input(source, number, sample_rate) for number, source in enumerate(in_a_list)]
    return inputs, several


def make_samples(samples: Any, sample_rate: int) -> Samples:
    """Return samples (N,) or (N, channels), int16 or floats from -1 to 1, as a recording.

    Raises:
        ValueError: another shape or type, or a sample rate that is not above 0.
    """
    array = np.asarray(samples)
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] > MOST_CHANNELS):
        raise ValueError(
            f"samples: expected shape (samples,) or (samples, channels), found {array.shape}"
        )

    if array.dtype != np.int16 and not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"samples: expected int16, or floats from -1 to 1; found {array.dtype}")
    if sample_rate <= 0:
        raise ValueError(f"sample_rate: expected above 0 Hz, found {sample_rate}")

    columns = array[:, None] if array.ndim == 1 else array
    dtype = np.int16 if array.dtype == np.int16 else np.float32
    return Samples(columns.astype(dtype, copy=False), int(sample_rate))


def _silence_warning(source: Source, tracks: Tracks) -> str:
    """Say that what was transcribed is silent; empty if it is not."""
    is_silent_channel = [is_silent(levels) for levels in channel_levels(source)]
    if all(is_silent_channel):
        return f"no channel is louder than {SILENT:g} dBFS"

    numbers = _channel_numbers(tracks)
    if not numbers or not all(is_silent_channel[number] for number in numbers):
        return ""
    with_sound = [number for number, silent in enumerate(is_silent_channel) if not silent]
    return (
        f"channel {_join_numbers(numbers)} is silent (below {SILENT:g} dBFS); channels with sound: "
        f"{_join_numbers(with_sound)}; {ADVICE}"
    )


def _lost_sound_warning(tracks: Tracks) -> str:
    """Say which channels with sound were not transcribed; empty if there is none."""
    if not tracks.lost:
        return ""
    return (
        f"channel {_join_numbers(_channel_numbers(tracks))} was transcribed; channels with other sound: "
        f"{_join_numbers(tracks.lost)}; {ADVICE}"
    )


def _channel_numbers(tracks: Tracks) -> list[int]:
    """Return the numbers of the channels; none for the mean of all."""
    return [track.channel for track in tracks.chosen if track.channel != "mix"]


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
