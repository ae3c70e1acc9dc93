"""Read stored features: matrices of Kaldi archives, `.npy` files and tensors of `torch.save`.

A matrix is (frames, features per frame).

A matrix counts as a signal of FRAME_RATE frames a second, so an index holds its frames as it holds
samples of audio. Kaldi's matrices are read in binary form: plain (FM, DM) and compressed (CM, CM2,
CM3). Their layout is that of `kaldi-matrix.cc` and `compressed-matrix.cc` of Kaldi.
"""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from wenet_uio.audio.decoders import FRAME_RATE, AudioError, AudioInfo, Excerpt
from wenet_uio.audio.partial_file import Encoded, PartialFile

KALDI = b"\0B"
"""First bytes of a Kaldi object in binary form."""
KALDIIO = (b"AUDIO", b"NPY")
"""Marks of encoded audio and of arrays of numpy in archives that kaldiio wrote."""
KALDI_HEAD = 32
"""Bytes; more than the header of a Kaldi matrix has."""
PLAIN = {"FM": "<f4", "DM": "<f8"}
COMPRESSED = {"CM": "<u1", "CM2": "<u2", "CM3": "<u1"}
"""Names of Kaldi's matrices, and the types of their numbers."""
UINT16_STEP = np.float32(1.52590218966964e-05)
"""Kaldi's 1 / 65535."""
FRAMES_TOO_FAR = 3
"""Frames by which a range may end behind its matrix, as in Kaldi."""
PLACE = re.compile(
    r"(.+?)(?::(\d{1,18}))?(?:\[(?:(\d+):(\d+)|:)(?:,(?:(\d+):(\d+)|:))?\])?", re.DOTALL
)
"""`feats.ark:1234[0:99,0:39]`: file, byte, first and last frame, first and last feature."""

Span = tuple[int, int] | None
"""First and last number, both inclusive as in Kaldi; None is all."""


class Place(NamedTuple):
    """Where a matrix is stored: what a line of Kaldi's `feats.scp` has after the key."""

    path: str
    offset: int | None = None
    """Byte at which the matrix begins; None: the matrix is the whole file."""
    frames: Span = None
    features: Span = None

    @property
    def is_whole(self) -> bool:
        """Whether all frames and features of the matrix are meant."""
        return self.frames is None and self.features is None


def place_of(source: str) -> Place:
    """Return the place that a path names.

    A path that names no place in an archive is a file of its own.
    """
    # Most lists have plain paths, which the regular expression would slow down.
    if source[-1:] not in "0123456789]" or ":" not in source:
        return Place(source)

    parts = PLACE.fullmatch(source)
    if parts is None or source == parts[1] or os.path.exists(source):  # noqa: PTH110 - a string
        return Place(source)

    path, offset, first_frame, last_frame, first_feature, last_feature = parts.groups()
    return Place(
        path,
        offset=int(offset) if offset else None,
        frames=_parse_span(first_frame, last_frame),
        features=_parse_span(first_feature, last_feature),
    )


def _parse_span(first: str | None, last: str | None) -> Span:
    """Return the span of two numbers in a place; None if it names none, or all by a colon alone."""
    return (int(first), int(last)) if first and last else None


@dataclass
class FeatureDecoder:
    """Opened features."""

    frames: int
    dim: int
    """Features per frame."""
    load: Callable[[], np.ndarray]
    """Reads the matrix (frames, dim)."""
    sample_rate: int = FRAME_RATE

    def info(self) -> AudioInfo:
        """Return frames as samples, at FRAME_RATE, and features per frame as channels."""
        return AudioInfo(self.frames, self.sample_rate, self.dim)

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the matrix (frames, dim) of a segment, as float32.

        Raises:
            AudioError: the matrix is cut short, or a number in it is not finite.
        """
        first, last = excerpt.samples(self.sample_rate, self.frames)
        # A copy, which may be changed
        matrix = np.array(self.load()[first:last], np.float32, order="C")
        if not np.isfinite(matrix).all():
            raise AudioError("features that are not finite numbers: damaged")

        return matrix

    def close(self) -> None:
        """Nothing to free."""

    def part_at(self, place: Place) -> FeatureDecoder:
        """Return a decoder of the part of the matrix that a place names.

        Raises:
            AudioError: the part is outside of the matrix.
        """
        if place.is_whole:
            return self

        rows = _span_slice(place.frames, "frames", self.frames, beyond=FRAMES_TOO_FAR)
        columns = _span_slice(place.features, "features", self.dim, beyond=0)
        return FeatureDecoder(
            rows.stop - rows.start,
            columns.stop - columns.start,
            lambda: self.load()[rows.start : rows.stop, columns],
        )


def _span_slice(span: Span, unit: str, size: int, beyond: int) -> slice:
    """Return the slice of a matrix that a span means, along the frames or along the features.

    Args:
        unit: what the span counts, for messages: frames or features.
        size: number of frames or features of the matrix.
        beyond: the span may end this far behind the end of the matrix. The slice ends with the
            matrix then.

    Raises:
        AudioError: the span is empty or outside of the matrix.
    """
    if span is None:
        return slice(0, size)

    first, last = span
    is_inside = first < size and last < size + beyond
    if first > last or not is_inside:
        raise AudioError(f"the {unit} {first}:{last} of a matrix with {size} {unit}")

    return slice(first, min(last + 1, size))


def features_of_array(array: np.ndarray) -> FeatureDecoder:
    """Return features of an array (frames, features) of floating point numbers."""
    frames, dim = array.shape
    return FeatureDecoder(frames, dim, lambda: array)


def npy_bytes(matrix: np.ndarray) -> bytes:
    """Return the bytes of a `.npy` file with a matrix."""
    file = io.BytesIO()
    np.save(file, matrix, allow_pickle=False)
    return file.getvalue()


class KaldiMatrix(NamedTuple):
    """The header of a matrix in Kaldi's binary form."""

    kind: str
    frames: int
    dim: int
    header: int
    """Bytes before the numbers."""
    lowest: float = 0.0
    width: float = 0.0
    """Of compressed matrices: lowest number, and difference to the highest."""

    @property
    def size(self) -> int:
        """Bytes, with the header."""
        numbers = np.dtype((PLAIN | COMPRESSED)[self.kind]).itemsize * self.frames * self.dim
        # CM has four quantiles of 16 bits for each column.
        quantiles = 8 * self.dim if self.kind == "CM" else 0
        return self.header + quantiles + numbers

    @classmethod
    def parse(cls, head: bytes, room: int) -> KaldiMatrix:
        """Parse the first KALDI_HEAD bytes of a matrix.

        `room` is the number of bytes from the start of the matrix to the end of the file. The
        numbers of the header have their size before them, 4, but not in compressed matrices.

        Raises:
            AudioError: no matrix, or cut short.
        """
        kind = head[2:6].partition(b" ")[0].decode("ascii", "replace")
        lowest = width = 0.0
        start = len(KALDI) + len(kind) + 1  # after the mark, the kind and a space
        try:
            if kind in COMPRESSED:
                lowest, width, frames, dim = struct.unpack_from("<ffii", head, start)
                start += 16
            elif kind in PLAIN:
                frames_size, frames, dim_size, dim = struct.unpack_from("<bibi", head, start)
                start += 10
                if (frames_size, dim_size) != (4, 4):
                    raise AudioError("the header of its Kaldi matrix is damaged")
            else:
                raise AudioError(f"a Kaldi object {kind!r}, which is no matrix")
        except struct.error:
            raise AudioError(f"cut short: {len(head)} bytes of a Kaldi matrix") from None

        matrix = cls(kind, frames, dim, start, lowest, width)
        holds_nothing = frames > 0 and dim == 0
        if min(frames, dim) < 0 or holds_nothing or matrix.size > room:
            raise AudioError(
                f"cut short or damaged: a Kaldi matrix of {frames} x {dim} in {room} bytes"
            )

        return matrix

    def numbers_of(self, data: bytes | memoryview) -> np.ndarray:
        """Return the matrix (frames, dim) in the bytes of the whole object."""
        shape = (self.frames, self.dim)
        count = self.frames * self.dim
        if self.kind in PLAIN:
            return np.frombuffer(data, PLAIN[self.kind], count, self.header).reshape(shape)

        lowest, width = np.float32(self.lowest), np.float32(self.width)
        dtype = np.dtype(COMPRESSED[self.kind])

        # CM2 and CM3 have one linear scale for all numbers.
        if self.kind != "CM":
            step = np.float32(float(width) * (1 / np.iinfo(dtype).max))
            levels = np.frombuffer(data, dtype, count, self.header).reshape(shape)
            return lowest + levels * step

        # CM has four quantiles for each column, and stores its numbers column by column.
        quantiles = np.frombuffer(data, "<u2", 4 * self.dim, self.header).reshape(self.dim, 4)
        tables = _byte_tables(lowest + width * UINT16_STEP * quantiles.astype(np.float32))
        levels = np.frombuffer(data, dtype, count, self.header + 8 * self.dim)
        columns = np.take_along_axis(tables, levels.reshape(self.dim, self.frames), axis=1)
        return columns.T  # (frames, dim)


def _byte_tables(quantiles: np.ndarray) -> np.ndarray:
    """Return the tables (dim, 256) of the number that each byte stands for, one for each column.

    Kaldi gives the bytes 0, 64, 192 and 255 the quantiles of 0, ¼, ¾ and 1 of their column. The
    numbers of the bytes between two of them lie on a line.

    Args:
        quantiles: (dim, 4).
    """
    lowest, low, high, highest = np.split(quantiles, 4, axis=1)  # (dim, 1) each
    byte = np.arange(256, dtype=np.float32)

    def line(first: np.ndarray, last: np.ndarray, first_byte: int, last_byte: int) -> np.ndarray:
        # In the types of Kaldi's CharToFloat, so that the numbers are the same bit for bit.
        rise = ((last - first) * (byte - first_byte)).astype(np.float64)
        return (first + rise * (1 / (last_byte - first_byte))).astype(np.float32)

    lower = line(lowest, low, 0, 64)  # (dim, 256)
    middle = line(low, high, 64, 192)
    upper = line(high, highest, 192, 255)
    return np.where(byte <= 64, lower, np.where(byte <= 192, middle, upper))


def kaldi_features(encoded: Encoded, start: int, end: int) -> FeatureDecoder:
    """Return features of the Kaldi matrix in bytes `start` up to `end` of opened bytes.

    Raises:
        AudioError: there is no matrix.
    """
    head = bytes_between(encoded, start, min(end, start + KALDI_HEAD))
    matrix = KaldiMatrix.parse(head, room=end - start)

    def load() -> np.ndarray:
        return matrix.numbers_of(bytes_between(encoded, start, start + matrix.size))

    return FeatureDecoder(matrix.frames, matrix.dim, load)


def extent_in_archive(encoded: Encoded, offset: int, size: int) -> tuple[int, int]:
    """Return the first byte of an object of a Kaldi archive, and the byte after it.

    The object is a matrix, a wav, or an encoded file behind a mark of kaldiio and its length.

    Args:
        offset: byte at which the object begins.
        size: bytes of the archive.

    Raises:
        AudioError: there is no such object.
    """
    head = bytes_between(encoded, offset, min(size, offset + KALDI_HEAD))
    if head.startswith(KALDI):
        return offset, offset + KaldiMatrix.parse(head, size - offset).size
    if head.startswith(b"RIFF") and len(head) == KALDI_HEAD:
        return offset, min(size, offset + 8 + int.from_bytes(head[4:8], "little"))

    mark = next((mark for mark in KALDIIO if head.startswith(mark)), None)
    if mark is not None and len(head) == KALDI_HEAD:
        # The mark, a byte with the width of the length, the length, the file.
        length_start = len(mark) + 1
        file_start = length_start + head[len(mark)]
        length = int.from_bytes(head[length_start:file_start], "little")
        return offset + file_start, min(size, offset + file_start + length)

    raise AudioError(
        f"no Kaldi matrix in binary form at byte {offset} of {size}; make feats.scp again"
    )


def read_encoded(path: str) -> bytes:
    """Return bytes of a file, or of the whole object at a place in a Kaldi archive.

    Raises:
        AudioError: there is no such object.
        OSError: the file cannot be read.
    """
    place = place_of(path)
    if place.offset is None:
        return Path(place.path).read_bytes()
    with open(place.path, "rb") as file:
        return bytes_between(file, *_object_extent(file, place.offset))


def encoded_size(path: str) -> int:
    """Return the number of bytes that `read_encoded` gives."""
    place = place_of(path)
    if place.offset is None:
        return os.stat(place.path).st_size  # noqa: PTH116 - a string

    with open(place.path, "rb") as file:
        start, end = _object_extent(file, place.offset)
        return end - start


def _object_extent(file: BinaryIO, offset: int) -> tuple[int, int]:
    """Return the first byte of an object of an archive, and the byte after the object."""
    return extent_in_archive(file, offset, os.fstat(file.fileno()).st_size)


def bytes_between(encoded: Encoded, start: int, end: int) -> bytes:
    """Return bytes `start` up to `end` of opened bytes, or up to their end.

    The position of a file stays: a decoder may be reading it.
    """
    if isinstance(encoded, memoryview):
        return bytes(whole_of(encoded)[start:end])
    if isinstance(encoded, PartialFile):
        return encoded.between(start, end)

    pieces: list[bytes] = []
    while start < end:
        piece = os.pread(encoded.fileno(), end - start, start)
        if not piece:  # the end of the file
            break
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def whole_of(encoded: memoryview) -> bytes | memoryview:
    """Return the bytes object behind a view of all of it, which needs no copy."""
    data = encoded.obj
    return data if isinstance(data, bytes) and len(data) == len(encoded) else encoded
