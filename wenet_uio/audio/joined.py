"""Audio whose header is no proof of its length: mp3, Ogg and FLAC.

Their files can be joined by appending one to another, as services that stream speech do, and an mp3
may state no length at all. libsndfile reads the first part alone. So the content tells which parts
there are, and each of them is decoded by libsndfile.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import numpy as np

from wenet_uio.audio import flac, mpeg, ogg
from wenet_uio.audio.decoders import AudioError, AudioInfo, Excerpt, Known, SndfileDecoder
from wenet_uio.audio.features import bytes_between, whole_of
from wenet_uio.audio.partial_file import Encoded, PartialFile, in_memory

LEAD = 16 * 1152
"""Samples of mp3 before a segment: a frame may have its data in the frames before it, up to 511
bytes back, which are 15 frames of the lowest bit rate."""


Span = TypeVar("Span")


class Part(NamedTuple):
    """A part of a file, as libsndfile reads it."""

    data: bytes
    known: Known = Known()

    def decoder(self, lead: int) -> SndfileDecoder:
        """Return a decoder of the part, which decodes `lead` samples before a segment too."""
        decoder = SndfileDecoder(io.BytesIO(self.data), len(self.data), lead)
        decoder.know(self.known)
        return decoder


@dataclass(frozen=True)
class Joinable(Generic[Span]):
    """How the parts of a format are found."""

    spans_of: Callable[[bytes], Sequence[Span]]
    """Finds the parts in all bytes of a file. It raises an AudioError if the file is damaged."""
    part: Callable[[bytes, Span], Part]
    """Cuts out a part."""
    is_plain: Callable[[Span], bool]
    """Whether libsndfile reads the file as it is, if this is its only part."""
    known: Callable[[Span], Known]
    """What libsndfile does not know of a plain part."""
    lead: int = 0
    """Samples before a segment that must be decoded for its first samples to be right."""


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
            names = [f"{rate} Hz with {channels}" for rate, channels in sorted(formats)]
            raise AudioError(f"joined parts of other sample rates or channels: {', '.join(names)}")
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
        blocks: list[np.ndarray] = []  # (samples, channels) each
        part_start = 0  # sample of the whole audio at which the part begins

        for part in self._parts:
            first_in_part = max(0, first - part_start)
            last_in_part = min(part.num_samples, last - part_start)
            if first_in_part < last_in_part:
                blocks += part.blocks(first_in_part, last_in_part, dtype)
            part_start += part.num_samples

        return self._parts[0].check_sound(excerpt.join_blocks(blocks))

    def close(self) -> None:
        """Close the decoders."""
        for part in self._parts:
            part.close()


class JoinableDecoder:
    """A file that may be joined of several."""

    def __init__(
        self,
        encoded: Encoded,
        size: int,
        joinable: Joinable[Any],
        stated: AudioInfo | None = None,
    ) -> None:
        """Open audio of `size` bytes.

        Args:
            joinable: how the parts of the format are found.
            stated: length and format as the header says, if it proves that the file has one part;
                libsndfile then opens the file when it is read. None: libsndfile opens it now.
        """
        # Without a proof, all of the file is read in search of parts.
        self._encoded = in_memory(encoded) if stated is None else encoded
        self._size = size
        self._joinable = joinable
        self._stated = stated
        self._opened: SndfileDecoder | PartsDecoder | None = None
        """The file as libsndfile reads it, or all of its parts; None as long as nothing is open."""
        self.is_believable = True
        """Whether a file of this size can hold as many samples as its header claims."""

        if stated is not None:
            self.sample_rate = stated.sample_rate
            return

        self._opened = first = self._open_first_part()
        self.is_believable = first.is_believable
        self.sample_rate = first.sample_rate

    def info(self) -> AudioInfo:
        """Return the length and format, from the header if it is a proof."""
        return self._stated or self._open_all_parts().info()

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment."""
        if self._stated is None or excerpt.end is None:
            # Whoever reads to the end can afford to look for parts, whatever the header says.
            return self._open_all_parts().read(excerpt)

        if self._opened is None:
            self._opened = self._open_first_part()
        return self._opened.read(excerpt)

    def close(self) -> None:
        """Close the handles."""
        if self._opened is not None:
            self._opened.close()

    def _open_first_part(self) -> SndfileDecoder:
        """Return a decoder of the file as libsndfile reads it, which may be its first part."""
        return SndfileDecoder(stream_of(self._encoded), self._size, self._joinable.lead)

    def _open_all_parts(self) -> SndfileDecoder | PartsDecoder:
        """Return a decoder of all parts of the file, which stays open for the next segment."""
        joinable = self._joinable
        spans = self._part_spans()

        # libsndfile reads a file of one part by itself.
        if len(spans) == 1 and joinable.is_plain(spans[0]):
            decoder = self._opened
            if not isinstance(decoder, SndfileDecoder):
                decoder = self._open_first_part()
            decoder.know(joinable.known(spans[0]))
            self._opened = decoder
            return decoder

        if not isinstance(self._opened, PartsDecoder):
            self.close()
            data = bytes_between(self._encoded, 0, self._size)
            parts = [joinable.part(data, span) for span in spans]
            self._opened = PartsDecoder([part.decoder(joinable.lead) for part in parts])
        return self._opened

    def _part_spans(self) -> Sequence[Any]:
        """Return where the parts of the file are.

        The parts of a local file are remembered until it changes, because its segments are read one
        by one, each by a decoder of its own.
        """
        if isinstance(self._encoded, (memoryview, PartialFile)):
            return self._find_parts()

        status = os.fstat(self._encoded.fileno())
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in _spans_of_files:
            spans = self._find_parts()
            if len(_spans_of_files) >= MOST_FILES:
                oldest = next(iter(_spans_of_files))
                del _spans_of_files[oldest]
            _spans_of_files[key] = spans

        return _spans_of_files[key]

    def _find_parts(self) -> Sequence[Any]:
        """Find the parts in the bytes of the file."""
        return self._joinable.spans_of(bytes_between(self._encoded, 0, self._size))


def open_mp3(encoded: Encoded, size: int, head: bytes, start: int) -> JoinableDecoder:
    """Return a decoder of an mp3 of `size` bytes that begins with `head`.

    Args:
        start: byte of the first frame, after tags.
    """
    first_frame = head[start:]
    if len(first_frame) < mpeg.FIRST_BYTES:
        first_frame = bytes_between(encoded, start, start + mpeg.FIRST_BYTES)

    stated = mpeg.stated_length(first_frame, size - start)
    return JoinableDecoder(encoded, size, MP3, stated)


def open_ogg(encoded: Encoded, size: int) -> JoinableDecoder:
    """Return a decoder of an Ogg."""
    return JoinableDecoder(encoded, size, OGG)


def open_flac(encoded: Encoded, size: int, head: bytes) -> JoinableDecoder:
    """Return a decoder of a FLAC that begins with `head`."""
    stated = None
    stream_info = flac.stream_info(head)
    if stream_info is not None and stream_info.num_samples:
        # The length in the header is a proof if the last frame of the file is the last one stated.
        tail_bytes = 2 * stream_info.largest_frame or flac.TAIL
        tail = bytes_between(encoded, max(0, size - tail_bytes), size)
        if flac.ends_as_stated(stream_info, size, tail):
            stated = AudioInfo(
                stream_info.num_samples, stream_info.sample_rate, stream_info.channels
            )

    return JoinableDecoder(encoded, size, FLAC, stated)


def _known_mp3_length(part: mpeg.Part) -> Known:
    """Return the samples of a part that has no header of length, and gets none.

    libsndfile estimates them from the bit rate.
    """
    if part.has_info or not part.is_constant:
        return Known()
    return Known(num_samples=part.num_samples)


def _known_last_seek(link: ogg.Link) -> Known:
    """Return the last page of Vorbis: libsndfile seeks to wrong samples on it if its end is cut off."""
    return Known(last_seek=link.last_page)


MP3 = Joinable(
    mpeg.parts_of,
    lambda data, part: Part(mpeg.with_length(data, part), _known_mp3_length(part)),
    is_plain=lambda part: part.has_info or part.is_constant,
    known=_known_mp3_length,
    lead=LEAD,
)
OGG = Joinable(
    ogg.links_of,
    lambda data, link: Part(data[link.start : link.end], _known_last_seek(link)),
    is_plain=lambda _: True,
    known=_known_last_seek,
)
FLAC = Joinable(
    flac.streams_of,
    lambda data, span: Part(data[slice(*span)]),
    is_plain=lambda _: True,
    known=lambda _: Known(),
)
MOST_FILES = 256
"""Files whose parts are remembered."""
_spans_of_files: dict[tuple[int, int, int, int], Sequence[Any]] = {}
"""{device, inode, bytes and time of change in ns of a file: where its parts are}, the oldest first."""


def stream_of(encoded: Encoded) -> BinaryIO | PartialFile:
    """Return encoded audio as a file."""
    if not isinstance(encoded, memoryview):
        return encoded
    return io.BytesIO(whole_of(encoded))  # shares a bytes object, and copies anything else
