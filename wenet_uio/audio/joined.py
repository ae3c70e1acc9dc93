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


class JoinableDecoder(SndfileDecoder):
    """A format whose files may be joined; `parts_of` finds the parts in all bytes of a file."""

    def __init__(
        self,
        encoded: memoryview | BinaryIO,
        size: int,
        parts_of: Callable[[bytes], Sequence[Part]],
        *,
        header_is_proof: bool,
        starts_are_sure: bool = True,
        lead: int = 0,
    ) -> None:
        """Open audio of `size` bytes.

        Args:
            parts_of: finds the parts.
            header_is_proof: the header states the length of the whole file.
            starts_are_sure: the first part is read right by its header, even if others follow.
            lead: see SndfileDecoder.
        """
        super().__init__(stream_of(encoded), size, lead)
        self._encoded, self._size, self._parts_of = encoded, size, parts_of
        self._header_is_proof, self._starts_are_sure = header_is_proof, starts_are_sure
        self._parts: PartsDecoder | None = None

    def info(self) -> AudioInfo:
        """Return the length and format, from the header if it is a proof."""
        parts = None if self._header_is_proof else self._all_parts()
        return super().info() if parts is None else parts.info()

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment."""
        is_inside = (
            self._starts_are_sure
            and excerpt.end is not None
            and excerpt.end * self.sample_rate <= self.num_samples
        )
        if is_inside or (self._header_is_proof and not self._starts_are_sure):
            return super().read(excerpt)

        # Whoever reads all of a file can afford to look for parts, whatever its header says.
        parts = self._all_parts()
        return super().read(excerpt) if parts is None else parts.read(excerpt)

    def close(self) -> None:
        """Close the handles."""
        super().close()
        if self._parts is not None:
            self._parts.close()

    def _all_parts(self) -> PartsDecoder | None:
        """Return a decoder of the parts; None if the file is one part that libsndfile reads."""
        if self._parts is None:
            data = bytes_between(self._encoded, 0, self._size)
            parts = self._parts_of(data)
            if len(parts) == 1 and parts[0] == Part(data):
                return None
            self._parts = PartsDecoder([part.decoder(self._lead) for part in parts])
        return self._parts


def open_mp3(encoded: memoryview | BinaryIO, size: int, start: int) -> JoinableDecoder:
    """Return a decoder of an mp3 whose first frame is at byte `start`."""
    head = bytes_between(encoded, start, start + 512)
    return JoinableDecoder(
        encoded,
        size,
        _mp3_parts,
        header_is_proof=mpeg.states_its_length(head, size - start),
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
    return JoinableDecoder(
        encoded, size, partial(_slices, spans_of=ogg.links_of), header_is_proof=False
    )


def open_flac(encoded: memoryview | BinaryIO, size: int, head: bytes) -> JoinableDecoder:
    """Return a decoder of a FLAC that begins with `head`."""
    info = flac.stream_info(head)
    is_proof = False
    if info is not None and info.num_samples:
        tail = bytes_between(encoded, max(0, size - (2 * info.largest_frame or flac.TAIL)), size)
        is_proof = flac.ends_as_stated(info, size, tail)

    return JoinableDecoder(
        encoded, size, partial(_slices, spans_of=flac.streams_of), header_is_proof=is_proof
    )


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
