"""Sources that are data lists of this package: raw lists and shard lists; and what all types of sources
share: lists that are written for files of other tools, once, beside these files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from wenet_uio.base.files import written_aside
from wenet_uio.base.uris import shown
from wenet_uio.config.source import SourceConf, SourceType
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.formats.data_list import (
    AUDIO,
    PACKED_ERRORS,
    ShardFiles,
    opened_manifest,
    values_of,
)
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import without_query
from wenet_uio.dataset.formats.patterns import expand
from wenet_uio.dataset.formats.sample_layout import KeyEnds, Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import places_of, write_kept
from wenet_uio.dataset.storage.settings import cache_folder

Patterns = str | Sequence["Patterns"]
"""A pattern of paths, a list of patterns, or NeMo's buckets (a list of lists)."""


class AudioSourceConf(SourceConf):
    """Keys of sources that have a data list."""

    text_field: str | None = None
    """Name of the text in a manifest or a JSON member, or field of the text member in a tar.
    `txt;cls`: the first of these that a sample has."""
    audio_field: str | None = None
    """Field of the audio member, if the samples of a WebDataset tar have several; alternatives as
    in text_field."""
    key_ends: KeyEnds | None = None
    """Dot at which the key of a member ends: last (ours and WeNet's), first (WebDataset's), audio
    (that before the suffix of the audio, so that `a.b.en.txt` belongs to `a.b.wav`), or auto."""

    @property
    def layout(self) -> Layout:
        """How names in the files of the source are read."""
        return Layout(self.key_ends or "auto", self.audio_field, self.text_field)


def listed(
    section: type[AudioSourceConf], lists: Callable[[Any], Sequence[ListSource]]
) -> SourceType:
    """Return a type of sources whose samples are in data lists.

    Args:
        section: its keys.
        lists: gives the lists of a source. It raises a ListError if a file is missing or wrong.
    """

    def open_lists(conf: Any) -> list[Corpus]:
        return [source.open() for source in lists(conf)]

    return SourceType(section, open_lists, lists)


def expanded(patterns: Patterns) -> list[str]:
    """Return paths that patterns stand for, in order.

    Raises:
        ListError: a glob that matches nothing.
    """
    if isinstance(patterns, str):
        return expand(patterns)
    return [path for pattern in patterns for path in expanded(pattern)]


def folder_beside(path: str) -> Path:
    """Return the folder for a list that is written for a file: that of the file; of a remote file
    one in the cache.
    """
    if objects.is_remote(path):
        return cache_folder() / "lists"
    return Path(objects.without_scheme(path)).parent


def write_shard_list(folder: Path, shards: Sequence[ShardFiles]) -> str:
    """Return the path of a shard list in `folder` with these shards; the name contains a digest of
    the shards.

    The list is in the cache if the folder cannot be written.
    """
    lines = [
        str(ShardFiles(_absolute(tar), manifest and _absolute(manifest), shard_id)) + "\n"
        for tar, manifest, shard_id in shards
    ]
    digest = hashlib.blake2b("".join(lines).encode(), digest_size=6).hexdigest()
    path = folder / f"shards.{digest}.list"
    existing = next((place for place in places_of(path) if place.exists()), None)

    return str(
        existing or write_kept(places_of(path), lambda file: file.write("".join(lines).encode()))
    )


def _absolute(path: str) -> str:
    if objects.is_remote(path):
        return path
    return os.path.abspath(objects.without_scheme(path))  # noqa: PTH100 - Path.resolve would follow links


MEMBERS_OF = {"audio": ("wav", "flac", "mp3", "ogg", "opus"), "text": ("txt", "transcript")}
"""{field: usual names of its member in a tar}."""


class RawConf(AudioSourceConf):
    """A raw list: JSON lines that name audio files."""

    data_list: str


class ShardConf(AudioSourceConf):
    """A shard list: tars with audio and texts."""

    data_list: str
    rename: dict[str, str] = Field(default_factory=dict)
    """New names of fields, as `rename` of WebDataset: {audio: flac;wav, text: txt, speaker:
    spk.txt}. `audio` and `text` are other ways to write audio_field and text_field."""

    @model_validator(mode="before")
    @classmethod
    def _fields_of_rename(cls, values: Any) -> Any:
        """Return the keys with `audio` and `text` of `rename` as audio_field and text_field."""
        rename = values.get("rename") if isinstance(values, dict) else None
        if not rename or not isinstance(rename, dict):
            return values

        _refuse_key(rename)
        fields: dict[str, Any] = {"rename": dict(rename)}
        for name, members in MEMBERS_OF.items():
            key = f"{name}_field"
            if name in rename:
                if values.get(key) is not None:
                    raise ValueError(f"rename and {key} name the same field: give one of them")
                fields[key] = fields["rename"].pop(name)
            elif values.get(key) is None:
                _refuse_member(rename, name, members)

        return {**values, **fields}


def _refuse_key(rename: Mapping[str, Any]) -> None:
    """Raise a ValueError if a rename would give samples another key."""
    key = next((name for name in ("key", "__key__") if name in rename), None)
    if key:
        raise ValueError(
            f"rename: {key}: {rename[key]}: the key of a sample is the name that its members "
            "share, and no field of them; remove it, or pack the samples under other names"
        )


def _refuse_member(rename: Mapping[str, Any], name: str, members: Sequence[str]) -> None:
    """Raise a ValueError if a rename gives a field the usual name of its member."""
    member = next((renamed for renamed in members if renamed in rename), None)
    if member:
        raise ValueError(
            f"rename: the {name} is named {name}: write {name}: {rename[member]}, not {member}"
        )


def _raw_lists(conf: RawConf) -> list[ListSource]:
    return [ListSource(conf.data_list, "raw", conf.layout)]


def _shard_lists(conf: ShardConf) -> list[ListSource]:
    layout = replace(conf.layout, rename=tuple(sorted(conf.rename.items())))
    return [ListSource(conf.data_list, "shard", layout)]


RAW = listed(RawConf, _raw_lists)
SHARD = listed(ShardConf, _shard_lists)


def local_manifest(path: str) -> str:
    """Return a raw list of the manifest at `path`: the manifest, or of a remote one a copy whose
    audio has absolute URIs.

    Raises:
        OSError: the manifest cannot be read. ListError: its gzip is damaged.
    """
    if not objects.is_remote(path):
        return path

    digest = hashlib.blake2b(path.encode(), digest_size=8).hexdigest()
    name = Path(without_query(path)).name
    copy = cache_folder() / "lists" / f"{digest}.{name.removesuffix('.gz')}"
    try:
        with opened_manifest(path) as file:
            lines = b"".join(_make_audio_absolute(line, path) for line in file)
    except PACKED_ERRORS as error:
        raise ListError(
            f"{shown(path)}: cut short or damaged ({error}); compress the manifest again"
        ) from None

    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.is_file() or copy.read_bytes() != lines:  # an equal copy keeps its index
        with written_aside(copy) as file:
            file.write(lines)

    return str(copy)


def _make_audio_absolute(line: bytes, uri: str) -> bytes:
    """Return a line of the remote manifest `uri`, with the URI of its audio in place of a path
    relative to the manifest.

    Lines that are no JSON objects stay as they are; indexing names them.
    """
    try:
        values = values_of(line)
    except ListError:
        return line

    folder = without_query(uri).rpartition("/")[0]
    for name in AUDIO:
        wav = values.get(name)
        if isinstance(wav, str) and not objects.is_remote(wav) and not wav.startswith("/"):
            values[name] = f"{folder}/{wav}"

    return json.dumps(values, ensure_ascii=False).encode() + b"\n"
