"""Reading the samples of a shard in order, without an index, to list or extract them."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from wenet_uio.audio.read import AudioError, AudioInfo, audio_info
from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.files import written_aside


@dataclass(frozen=True)
class Sample:
    """Consecutive members of a tar that have the same name without suffix."""

    key: str
    members: dict[str, bytes]
    """Content of each member by suffix; the suffix is empty for a name without one."""

    def audio(self) -> dict[str, AudioInfo | str]:
        """Read the header of each audio member, by suffix; a string says why a header cannot be read."""
        found: dict[str, AudioInfo | str] = {}
        for suffix in AUDIO_SUFFIXES & self.members.keys():
            try:
                found[suffix] = audio_info(self.members[suffix])
            except AudioError as error:
                found[suffix] = str(error)
        return found

    def as_row(self) -> str:
        """One line: key, seconds, Hz, suffixes and text, separated by tabs."""
        info = next(iter(self.audio().values()), "no audio")
        length = (
            ("-", info) if isinstance(info, str) else (f"{info.num_samples / info.sample_rate:.3f}", info.sample_rate)
        )
        text = self.members.get("txt", b"").decode(errors="replace").strip()
        return "\t".join(map(str, (self.key, *length, ",".join(self.members), text)))

    def as_json(self) -> str:
        """A JSON object of texts, audio headers and, for other binary members, sizes."""
        values: dict[str, Any] = {"key": self.key}
        audio = self.audio()
        for suffix, data in self.members.items():
            if suffix in audio:
                header = audio[suffix]
                said = {"error": header} if isinstance(header, str) else asdict(header)
                values[suffix] = {"bytes": len(data), **said}
            else:
                values[suffix] = _text_or_size(data)
        return json.dumps(values, ensure_ascii=False)


def read_samples(path: str, keys: Sequence[str] = ()) -> Iterator[Sample]:
    """Samples of a plain or compressed tar, in the order of the tar.

    Args:
        keys: globs; if given, only samples whose key matches one of them.

    Raises:
        ListError: the tar is damaged, or the file is not a tar; samples before the damage are given first.
    """
    given = False
    try:
        with tarfile.open(path, "r|*") as tar:
            for key, members in _grouped(tar):
                given = True
                if not keys or any(fnmatchcase(key, pattern) for pattern in keys):
                    yield Sample(key, members)
    except tarfile.TarError as error:
        hint = "" if given else "; expected a tar, not a list of tars"
        raise ListError(f"{path}: {error}{hint}") from None


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


def _grouped(tar: tarfile.TarFile) -> Iterator[tuple[str, dict[str, bytes]]]:
    current: str | None = None
    members: dict[str, bytes] = {}
    for member in tar:
        if not member.isfile():
            continue
        folder, slash, base = member.name.rpartition("/")
        stem, dot, suffix = base.rpartition(".")
        key = f"{folder}{slash}{stem if dot else base}"
        if key != current and members:
            yield str(current), members
            members = {}
        current = key
        file = tar.extractfile(member)
        assert file is not None
        members[suffix if dot else ""] = file.read()
    if members:
        yield str(current), members


def _text_or_size(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"bytes": len(data)}
