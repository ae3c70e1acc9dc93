"""Audio whose header is no proof of its length: mp3, Ogg and FLAC.

Their files can be joined by appending one to another, as services that stream speech do, and an mp3
may state no length at all. libsndfile reads the first part alone. So the content tells which parts
there are, and each of them is decoded by libsndfile.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO, NamedTuple

import numpy as np

from wenet_uio.audio import flac, mpeg, ogg
from wenet_uio.audio.decoders import AudioError, AudioInfo, Excerpt, SndfileDecoder
from wenet_uio.audio.features import bytes_between, whole_of

LEAD = 16 * 1152
"""Samples of mp3 before a segment: a frame may have its data in the frames before it, up to 511
bytes back, which are 15 frames of the lowest bit rate."""


class Part(NamedTuple):
    """A part of a file, as libsndfile reads it."""

    data: bytes
    num_samples: int | None = None
    """None: its header tells."""

    def decoder(self, lead: int) -> SndfileDecoder:
        """Return a decoder of the part."""
        decoder = SndfileDecoder(io.BytesIO(self.data), len(self.data), lead)
        if self.num_samples is not None:
            decoder.num_samples = self.num_samples
        return decoder


class PartsDecoder:
    """Decodes the parts of a file one after the other."""

    def __init__(self, parts: Sequence[SndfileDecoder]) -> None:
        """Join decoders of the parts.

        Raises:
            AudioError: there is none, or they differ in sample rate or channels.
        """
        if not parts:
            raise AudioError("no samples")

        formats = {(part.sample_rate, part.channels) for part in parts}
        if len(formats) > 1:
            raise AudioError(
                "joined parts of other sample rates or channels: "
                + ", ".join(f"{rate} Hz with {channels}" for rate, channels in sorted(formats))
            )
        self._parts = parts
        self.sample_rate = parts[0].sample_rate
        self._num_samples = sum(part.num_samples for part in parts)

    def info(self) -> AudioInfo:
        """Return the length of all parts, and the format."""
        return AudioInfo(self._num_samples, self.sample_rate, self._parts[0].channels)

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment, which may span parts."""
        first, last = excerpt.samples(self.sample_rate, self._num_samples)
        dtype = self._parts[0].dtype_for(excerpt)
        blocks: list[np.ndarray] = []
        start = 0

        for part in self._parts:
            begin, end = max(0, first - start), min(part.num_samples, last - start)
            if begin < end:
                blocks += part.blocks(begin, end, dtype)
            start += part.num_samples

        return self._parts[0].checked(excerpt.joined(blocks))

    def close(self) -> None:
        """Close the decoders."""
        for part in self._parts:
            part.close()


class JoinableDecoder:
    """A format whose files may be joined; `parts_of` finds the parts in all bytes of a file."""

    def __init__(
        self,
        encoded: memoryview | BinaryIO,
        size: int,
        parts_of: Callable[[bytes], Sequence[Part]],
        *,
        stated: AudioInfo | None,
        starts_are_sure: bool = True,
        lead: int = 0,
    ) -> None:
        """Open audio of `size` bytes.

        Args:
            parts_of: finds the parts.
            stated: what the header says, if it is a proof; libsndfile then opens the file when it
                is read. None: libsndfile opens it now.
            starts_are_sure: the first part is read right by its header, even if others follow.
            lead: see SndfileDecoder.
        """
        self._encoded, self._size, self._parts_of = encoded, size, parts_of
        self._stated, self._starts_are_sure, self._lead = stated, starts_are_sure, lead
        self._opened: SndfileDecoder | None = None
        self._parts: PartsDecoder | None = None
        self.sample_rate = (stated or self._first()).sample_rate
        """Hz."""

    def info(self) -> AudioInfo:
        """Return the length and format, from the header if it is a proof."""
        return self._stated or (self._all_parts() or self._first()).info()

    @property
    def is_believable(self) -> bool:
        """As SndfileDecoder.is_believable."""
        return self._stated is not None or self._first().is_believable

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment."""
        if self._starts_are_sure:
            is_sure = (
                excerpt.end is not None
                and excerpt.end * self.sample_rate <= self._first().num_samples
            )
        else:
            is_sure = self._stated is not None

        # Whoever reads all of a file can afford to look for parts, whatever its header says.
        parts = None if is_sure else self._all_parts()
        return (parts or self._first()).read(excerpt)

    def close(self) -> None:
        """Close the handles."""
        for decoder in (self._opened, self._parts):
            if decoder is not None:
                decoder.close()

    def _first(self) -> SndfileDecoder:
        """Return a decoder of the file as libsndfile reads it, which may be its first part."""
        if self._opened is None:
            self._opened = SndfileDecoder(stream_of(self._encoded), self._size, self._lead)
        return self._opened

    def _all_parts(self) -> PartsDecoder | None:
        """Return a decoder of the parts; None if the file is one part that libsndfile reads."""
        if self._parts is None:
            data = bytes_between(self._encoded, 0, self._size)
            parts = self._parts_of(data)
            if len(parts) == 1 and parts[0] == Part(data):
                return None
            self._parts = PartsDecoder([part.decoder(self._lead) for part in parts])
        return self._parts


def open_mp3(encoded: memoryview | BinaryIO, size: int, head: bytes, start: int) -> JoinableDecoder:
    """Return a decoder of an mp3 that begins with `head`, and whose first frame is at byte
    `start`.
    """
    head = head[start:] if start + mpeg.FIRST_BYTES <= len(head) else b""
    head = head or bytes_between(encoded, start, start + mpeg.FIRST_BYTES)
    return JoinableDecoder(
        encoded,
        size,
        _mp3_parts,
        stated=mpeg.stated_length(head, size - start),
        starts_are_sure=False,
        lead=LEAD,
    )


def _mp3_parts(data: bytes) -> list[Part]:
    return [
        Part(
            mpeg.with_length(data, part),
            part.num_samples if part.is_constant and not part.has_info else None,
        )
        for part in mpeg.parts_of(data)
    ]


def open_ogg(encoded: memoryview | BinaryIO, size: int) -> JoinableDecoder:
    """Return a decoder of an Ogg."""
    return JoinableDecoder(encoded, size, partial(_slices, spans_of=ogg.links_of), stated=None)


def open_flac(encoded: memoryview | BinaryIO, size: int, head: bytes) -> JoinableDecoder:
    """Return a decoder of a FLAC that begins with `head`."""
    stated = None
    info = flac.stream_info(head)
    if info is not None and info.num_samples:
        tail = bytes_between(encoded, max(0, size - (2 * info.largest_frame or flac.TAIL)), size)
        if flac.ends_as_stated(info, size, tail):
            stated = AudioInfo(info.num_samples, info.sample_rate, info.channels)

    return JoinableDecoder(encoded, size, partial(_slices, spans_of=flac.streams_of), stated=stated)


def _slices(data: bytes, spans_of: Callable[[bytes], Sequence[tuple[int, int]]]) -> list[Part]:
    """Return the parts; all bytes if there is one."""
    spans = spans_of(data)
    if len(spans) <= 1:
        return [Part(data)]
    return [Part(data[start:end]) for start, end in spans]


def stream_of(encoded: memoryview | BinaryIO) -> BinaryIO:
    """Return encoded audio as a file."""
    if not isinstance(encoded, memoryview):
        return encoded
    return io.BytesIO(whole_of(encoded))  # shares a bytes object, and copies anything else
