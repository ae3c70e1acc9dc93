"""What types of sources share: their data lists, and lists that are written for files of other
tools, once, beside these files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wenet_uio.config.source import SourceConf, SourceType
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.formats.data_list import ShardFiles
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
