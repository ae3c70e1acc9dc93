"""Excerpts of the recordings of a corpus: noise of a list, or other utterances of the training
data.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from wenet_uio.audio.decoders import AudioError, Channel
from wenet_uio.audio.read import OUT_OF_RESOURCES, read_audio
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import AudioUtterance, SampleRef, Skipped

TRIES = 20
"""Recordings that are drawn at most, until one can be used."""
MARGIN = 0.01
"""Seconds that are read beyond an excerpt, because resampling rounds its length."""
KEPT_BYTES = 64 << 20
"""Recordings of a list that takes at most so much memory are decoded once by each worker: 17
minutes at 16 kHz."""


class Excerpt(NamedTuple):
    """A drawn excerpt, and the recordings that were drawn before it and could not be read."""

    waveform: torch.Tensor | None
    """(samples,) float32; None if no recording could be used."""
    unreadable: tuple[Skipped, ...]


class Recordings:
    """All recordings of a corpus. The same draw gives the same excerpt in every process."""

    def __init__(self, corpus: Corpus, rate: int, channel: Channel, *, by_key: bool) -> None:
        """Read from `corpus`, at `rate` Hz.

        Args:
            by_key: order the recordings by their keys, so that the order of the list has no effect.
                This takes 16 bytes for each recording.
        """
        self.corpus, self.rate, self.channel = corpus, rate, channel
        fits = corpus.total_seconds * rate * torch.float32.itemsize <= KEPT_BYTES
        self._kept: dict[SampleRef, torch.Tensor] | None = {} if fits else None
        has_audio = corpus.extremes(slice(None)).longest > 0
        self._ends = np.cumsum(np.where(has_audio, corpus.samples, 0), dtype=np.int64)
        self._order: np.ndarray | None = None
        if by_key:
            shards = np.flatnonzero(has_audio)
            hashes = [corpus.rows(int(shard)).key_hash for shard in shards]
            self._order = np.argsort(np.concatenate(hashes), kind="stable")

    def __len__(self) -> int:
        return int(self._ends[-1])

    def excerpt(self, samples: int, random: Random, other_than: str = "") -> Excerpt:
        """Return an excerpt (samples,) of a drawn recording, from a drawn place on. A shorter
        recording is repeated.

        Args:
            other_than: key of the recording that must not be drawn.

        Raises:
            ListError: none of TRIES drawn recordings can be read.
        """
        waveform, unreadable = self._draw_recording(samples, random, other_than)
        if waveform is None or len(waveform) >= samples:
            return Excerpt(waveform, unreadable)
        return Excerpt(repeated(waveform, random.randrange(len(waveform)), samples), unreadable)

    def part(self, samples: int, random: Random, other_than: str = "") -> Excerpt:
        """Draw as `excerpt` does, but return a recording that is shorter as it is."""
        return self._draw_recording(samples, random, other_than)

    def beginning(self, samples: int, random: Random) -> Excerpt:
        """Return the first samples, at most `samples`, of a drawn recording."""
        return self._draw_recording(samples, random, place=0.0)

    def _draw_recording(
        self, samples: int, random: Random, other_than: str = "", place: float | None = None
    ) -> Excerpt:
        """Draw a recording, and cut it to at most `samples` samples; try others if it cannot be
        read.
        """
        unreadable: list[Skipped] = []
        for _ in range(TRIES):
            ref = self._sample_ref(random.randrange(len(self)))
            if self.corpus.key(ref) == other_than:
                continue

            drawn_place = random.random() if place is None else place
            try:
                waveform = self._read(ref, samples, drawn_place)
            except (AudioError, ListError, OSError) as error:
                if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
                    raise
                unreadable.append(Skipped(self.corpus.key(ref), "unreadable_noise", str(error)))
                continue

            if waveform is not None:
                return Excerpt(waveform, tuple(unreadable))

        if len(unreadable) == TRIES:
            raise ListError(
                f"{self.corpus.data_list}: none of {TRIES} recordings can be read; "
                f"{unreadable[-1].detail}"
            )

        return Excerpt(None, tuple(unreadable))

    def _sample_ref(self, number: int) -> SampleRef:
        if self._order is not None:
            number = int(self._order[number])
        shard = int(np.searchsorted(self._ends, number, side="right"))
        return SampleRef(shard, number - (int(self._ends[shard - 1]) if shard else 0))

    def _read(self, ref: SampleRef, samples: int, place: float) -> torch.Tensor | None:
        """Return at most `samples` samples of a recording; None if it has no audio.

        Args:
            place: where they begin: 0 at the start of the recording, 1 so that they end with it.
        """
        if self._kept is None:
            waveform = self._decode(ref, samples / self.rate + MARGIN, place)
            return None if waveform is None else waveform[:samples]

        recording = self._kept.get(ref)
        if recording is None:
            recording = self._decode(ref, math.inf, place)
            if recording is None:
                return None
            self._kept[ref] = recording

        first = int(place * max(0, len(recording) - samples))
        return recording[first : first + samples]

    def _decode(self, ref: SampleRef, needed: float, place: float) -> torch.Tensor | None:
        """Return `needed` seconds from `place`, 0 to 1, of the recording on, or all of a shorter
        one; None without audio.
        """
        utterance = self.corpus.read(ref)
        if not isinstance(utterance, AudioUtterance):
            return None

        rows = self.corpus.rows(ref.shard)
        seconds = int(rows.num_samples[ref.row]) / int(rows.sample_rate[ref.row])
        start, end = utterance.start, utterance.end
        if seconds > needed:
            start += place * (seconds - needed)
            end = start + needed

        waveform, rate = read_audio(
            utterance.audio, start, end, utterance.extra.get("channel", self.channel)
        )
        samples_read = torch.from_numpy(waveform)
        return samples_read if rate == self.rate else resample(samples_read, rate, self.rate)


def repeated(waveform: torch.Tensor, first: int, samples: int) -> torch.Tensor:
    """Return (samples,) of an endless repetition of `waveform`, from its sample `first` on."""
    if first + samples <= len(waveform):
        return waveform[first : first + samples]
    times = -(-(first + samples) // len(waveform))
    return waveform.repeat(times)[first : first + samples]
