"""Read the samples of a shard in order, without an index, to list or extract them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.read import audio_info
from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import listed
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import ARRAY_SUFFIXES, AUDIO_SUFFIXES
from wenet_uio.dataset.formats.tar_members import Member, read_members

COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
"""First bytes of compressed files, and how they are opened."""
PIECE = 1 << 20
"""Bytes that are unpacked at a time."""
NAMED = 10
"""An error names this many of the losses."""


@dataclass(frozen=True)
class Sample:
    """Consecutive members of a tar that have the same name without suffix."""

    key: str
    members: dict[str, bytes]
    """Content of each member by suffix; the suffix is empty for a name without one."""

    def audio(self) -> dict[str, AudioInfo | str]:
        """Read the header of each audio member, by suffix.

        A string says why a header cannot be read.

        Arrays, which may be features, count where a sample has no other audio.
        """
        headers: dict[str, AudioInfo | str] = {}
        suffixes = AUDIO_SUFFIXES & self.members.keys()
        if not suffixes:
            suffixes = ARRAY_SUFFIXES & self.members.keys()

        for suffix in suffixes:
            try:
                headers[suffix] = audio_info(self.members[suffix])
            except AudioError as error:
                headers[suffix] = str(error)

        return headers

    def as_row(self) -> str:
        """Return one line: key, seconds, Hz, suffixes and text, separated by tabs."""
        info = next(iter(self.audio().values()), "no audio")
        if isinstance(info, str):
            seconds, rate = "-", info
        else:
            seconds, rate = f"{info.num_samples / info.sample_rate:.3f}", str(info.sample_rate)

        text = self.members.get("txt", b"").decode(errors="replace").strip()
        return "\t".join([self.key, seconds, rate, ",".join(self.members), text])

    def as_json(self) -> str:
        """Return a JSON object of texts, audio headers and, for other binary members, sizes."""
        values: dict[str, Any] = {"key": self.key}
        audio = self.audio()
        for suffix, data in self.members.items():
            if suffix in audio:
                header = audio[suffix]
                details = {"error": header} if isinstance(header, str) else asdict(header)
                values[suffix] = {"bytes": len(data), **details}
            else:
                values[suffix] = _text_or_size(data)

        return json.dumps(values, ensure_ascii=False)


def read_samples(path: str, keys: Sequence[str] = ()) -> Iterator[Sample]:
    """Yield samples of a plain or compressed tar, in the order of the tar.

    A compressed tar is unpacked to a temporary file.

    Args:
        keys: globs; if given, only samples whose key matches one of them.

    Raises:
        ListError: the tar is damaged, or the file is not a tar; all samples that can be read are
            given first.
    """
    with _plain_tar(path) as (plain, bad):
        members, problems = read_members(plain, path)
        bad += problems
        for sample in _group_members(plain, members, bad):
            if not keys or any(fnmatchcase(sample.key, pattern) for pattern in keys):
                yield sample

    if bad:
        reasons = [reason if name == path else f"{name}: {reason}" for name, reason in bad]
        hint = "" if members else "; expected a tar, not a list of tars"
        raise ListError(f"{path}: {listed(reasons, NAMED, '; ')}{hint}")


def extract(sample: Sample, folder: str | Path) -> None:
    """Write the members of a sample into a folder, as files with the names of the members.

    Raises:
        ListError: a name leads out of the folder.
    """
    for suffix, data in sample.members.items():
        target = Path(folder, f"{sample.key}.{suffix}" if suffix else sample.key)
        if not Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
            raise ListError(f"member {sample.key}.{suffix} leads out of {folder}")
        with written_aside(target) as file:
            file.write(data)


@contextmanager
def _plain_tar(path: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Give the path of a plain tar, and the damage that unpacking met.

    The path is the file itself, or a temporary file for a compressed tar.
    """
    with open(path, "rb") as file:
        head = file.read(max(map(len, COMPRESSED)))

    open_compressed = [opened for mark, opened in COMPRESSED.items() if head.startswith(mark)]
    if not open_compressed:
        yield path, []
        return

    bad: list[tuple[str, str]] = []
    with tempfile.NamedTemporaryFile() as plain:
        try:
            with open_compressed[0](path, "rb") as packed:
                while piece := packed.read(PIECE):
                    plain.write(piece)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # a full disk; errors of gzip and bz2 have no number
            bad.append((path, f"cut short or damaged ({error})"))

        plain.flush()
        yield plain.name, bad


def _group_members(
    path: str, members: Sequence[Member], bad: list[tuple[str, str]]
) -> Iterator[Sample]:
    """Yield samples of a plain tar; members whose name occurs twice in a sample go to `bad`."""
    with open(path, "rb") as file:
        for key, group in groupby(members, lambda member: _key_and_suffix(member.name)[0]):
            sample = Sample(key, {})
            for member in group:
                suffix = _key_and_suffix(member.name)[1]
                if suffix in sample.members:
                    bad.append((member.name, "occurs more than once; the last is given"))

                file.seek(member.offset)
                sample.members[suffix] = file.read(member.size)

            yield sample


def _key_and_suffix(name: str) -> tuple[str, str]:
    """Return a name with folders up to its last dot, and the rest.

    A name without a dot has no suffix.
    """
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.rpartition(".")
    return (f"{folder}{slash}{stem}", suffix) if dot else (name, "")


def _text_or_size(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"bytes": len(data)}
