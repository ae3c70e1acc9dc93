"""Encoder frames of utterances on disk, found by the content that they were computed from.

    FOLDER/rank_R.bin      frames, one utterance after another
    FOLDER/rank_R.jsonl    a line for each batch: its epoch, the place of its frames, what they are of

Each rank appends to its own files and reads those of all ranks. Within an epoch it takes from the
others only what they stored in earlier epochs. So a run that was killed finds the same frames as one
that was not.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from wenet_uio.base.files import append_line, read_lines

FIELDS = ("epoch", "offset", "digests", "frames", "checksums")
"""Fields of a line: epoch; first byte; then of each utterance the digest of its content, the number
of its frames, and the CRC-32 of their bytes."""


class _Place(NamedTuple):
    """Where the frames of an utterance are."""

    rank: int
    offset: int
    frames: int
    checksum: int


class FrameStore:
    """Frames (T', D) by the digest of what they were computed from; `begin_epoch` is the first call."""

    def __init__(self, folder: Path, rank: int, width: int, dtype: torch.dtype) -> None:
        """Create the folder if it is missing.

        Args:
            width: D.
            dtype: of the stored frames.
        """
        self.folder = folder
        self.rank = rank
        self.width = width
        self.dtype = dtype
        self.epoch = 0
        self._places: dict[str, _Place] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def begin_epoch(self, epoch: int) -> None:
        """Find what all ranks stored in epochs before `epoch`, and what this rank stored at all."""
        self.epoch = epoch
        self._places = {}
        ranks = sorted(
            int(path.stem.partition("_")[2]) for path in self.folder.glob("rank_*.jsonl")
        )
        for rank in ranks:
            for line in read_lines(self._index(rank), FIELDS):
                if rank == self.rank or line["epoch"] < epoch:
                    self._note(rank, line)

    def find(self, digest: str) -> torch.Tensor | None:
        """Return frames (T', D) of the stored type; None if there are none.

        Raises:
            ValueError: the stored frames are damaged.
        """
        place = self._places.get(digest)
        if place is None:
            return None

        size = place.frames * self.width * self.dtype.itemsize
        with open(self._data(place.rank), "rb") as file:
            file.seek(place.offset)
            content = bytearray(file.read(size))
        if len(content) < size or zlib.crc32(content) != place.checksum:
            raise ValueError(
                f"{self._data(place.rank)}: damaged at byte {place.offset}; remove the folder "
                f"{self.folder}, and the frames are computed anew"
            )
        if not content:
            return torch.empty(0, self.width, dtype=self.dtype)
        return torch.frombuffer(content, dtype=self.dtype).view(-1, self.width)

    def add(self, frames: Mapping[str, torch.Tensor]) -> None:
        """Store {digest: frames (T', D)} of one batch.

        The line that names the frames is written after them and at once, so that a killed process leaves
        all of a batch or nothing.

        Raises:
            OSError: the disk is full, or the files cannot be written.
        """
        contents = [
            utterance.to(self.dtype).contiguous().view(torch.uint8).numpy().tobytes()
            for utterance in frames.values()
        ]
        path = self._data(self.rank)
        try:
            with open(path, "ab") as file:
                offset = file.tell()
                file.writelines(contents)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None

        line = {
            "epoch": self.epoch,
            "offset": offset,
            "digests": list(frames),
            "frames": [len(utterance) for utterance in frames.values()],
            "checksums": [zlib.crc32(content) for content in contents],
        }
        append_line(self._index(self.rank), line)
        self._note(self.rank, line)

    def _note(self, rank: int, line: Mapping[str, Any]) -> None:
        """Remember the places of a line; the first place of a digest stays."""
        offset = line["offset"]
        for digest, frames, checksum in zip(
            line["digests"], line["frames"], line["checksums"], strict=True
        ):
            self._places.setdefault(digest, _Place(rank, offset, frames, checksum))
            offset += frames * self.width * self.dtype.itemsize

    def _data(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.bin"

    def _index(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.jsonl"
