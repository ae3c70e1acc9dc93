"""Sources of a mixture as data lists. Sources in formats of other tools get a list, written once
beside their files.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wenet_uio.config.mixture import SourceConf
from wenet_uio.dataset.corpus.remote_manifest import local_manifest
from wenet_uio.dataset.formats.data_list import (
    DataType,
    ListError,
    ShardFiles,
    pair_manifests,
)
from wenet_uio.dataset.formats.lhotse_cuts import folder_beside_shar, list_of_cuts
from wenet_uio.dataset.formats.patterns import expand
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage import cache, containers, objects
from wenet_uio.dataset.storage.kept_files import places_of, write_kept

Patterns = str | Sequence["Patterns"]
"""A pattern of paths, a list of patterns, or NeMo's buckets (a list of lists)."""


class SourceList(NamedTuple):
    """The list of a source; the arguments of `open_list`."""

    data_list: str
    data_type: DataType
    layout: Layout


WITHOUT_LIST = ("txt", "txt_pair", "multimodal_conversation", "tts_text")
"""Types of sources that are read from their files, without a data list."""


def lists_of_sources(sources: Sequence[SourceConf]) -> list[SourceList]:
    """Return the lists of sources and of the members of groups, without duplicates. Text without
    audio has no list.
    """
    lists: list[SourceList] = []
    for conf in sources:
        if conf.type not in WITHOUT_LIST:
            lists.extend(
                lists_of_sources(conf.members()) if conf.type == "group" else lists_of(conf)
            )

    return list(dict.fromkeys(lists))


def lists_of(conf: SourceConf) -> list[SourceList]:
    """Return the lists of one source of audio (not a group).

    Raises:
        ListError: a file is missing, or the numbers of tars and manifests differ.
    """
    layout = Layout(
        conf.key_ends or "auto",
        conf.audio_field,
        conf.text_field,
        tuple(sorted(conf.rename.items())),
    )
    match conf.type:
        case "raw" | "shard":
            return [SourceList(str(conf.files("data_list")), conf.type, layout)]
        case "nemo":
            return [
                SourceList(local_manifest(path), "raw", layout)
                for path in expanded(conf.files("manifest_filepath"))
            ]
        case "nemo_tarred":
            return [SourceList(_list_of_tarred(conf), "shard", layout)]
        case "lhotse" | "lhotse_cuts":
            return [
                SourceList(list_of_cuts(path), "raw", layout)
                for path in expanded(conf.files("cuts_path"))
            ]
        case "lhotse_shar":
            return [
                SourceList(_list_of_shar(folder), "shard", layout)
                for folder in expanded(conf.files("shar_path"))
            ]
        case "parquet" | "mds" | "litdata":
            return [
                SourceList(
                    _list_of_containers(expanded(conf.files("paths")), conf.type), "shard", layout
                )
            ]
        case _:
            raise ValueError(f"a source of type {conf.type} has no data list")


def _list_of_tarred(conf: SourceConf) -> str:
    shards = _paired(conf.files("tarred_audio_filepaths"), conf.files("manifest_filepath"))
    first = shards[0].manifest
    assert first is not None
    remote = objects.is_remote(first)
    folder = cache.directory() / "lists" if remote else Path(objects.without_scheme(first)).parent

    return _written(folder, shards)


def _paired(tars: Patterns, manifests: Patterns) -> list[ShardFiles]:
    """Return tars with their manifests. Two lists of one length belong together item by item: one
    manifest for N tars each.
    """
    if isinstance(tars, str) or isinstance(manifests, str) or len(tars) != len(manifests):
        return pair_manifests(expanded(tars), expanded(manifests))
    return [shard for pair in zip(tars, manifests, strict=True) for shard in _paired(*pair)]


def _list_of_shar(folder: str) -> str:
    tars, cuts = (
        sorted(map(str, Path(folder).glob(name))) for name in ("recording.*.tar", "cuts.*.jsonl*")
    )
    if not tars or len(tars) != len(cuts):
        raise ListError(
            f"{folder}: expected as many recording.*.tar as cuts.*.jsonl.gz of Lhotse's Shar, "
            f"found {len(tars)} and {len(cuts)}"
        )

    return _written(folder_beside_shar(cuts[0]), pair_manifests(tars, cuts))


def _list_of_containers(paths: Sequence[str], kind: str) -> str:
    """Return the shard list of files of a kind, such as parquet, and of all such files below
    folders.
    """
    files = [
        file
        for path in paths
        for file in (_files_below(path, kind) if Path(path).is_dir() else [path])
    ]
    folder = cache.directory() / "lists" if objects.is_remote(files[0]) else Path(files[0]).parent
    return _written(folder, [ShardFiles(file) for file in files])


def _files_below(folder: str, kind: str) -> list[str]:
    files = [str(path) for path in Path(folder).rglob("*") if containers.kind_of(str(path)) == kind]
    if not files:
        raise ListError(f"{folder}: no files of type {kind} in it; compressed shards are not read")
    return sorted(files, key=_by_numbers)


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """Sort key: chunk-0-9 is before chunk-0-10."""
    return [
        (int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d+)", name)
    ]


def _written(folder: Path, shards: Sequence[ShardFiles]) -> str:
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


def expanded(patterns: Patterns) -> list[str]:
    """Return paths that patterns stand for, in order.

    Raises:
        ListError: a glob that matches nothing.
    """
    if isinstance(patterns, str):
        return expand(patterns)
    return [path for pattern in patterns for path in expanded(pattern)]
