"""Sources whose files hold many samples each: parquet, MosaicML's MDS, Lightning's LitData."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.config.source import Paths
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.sources.lists import (
    AudioSourceConf,
    expanded,
    folder_beside,
    listed,
    write_shard_list,
)
from wenet_uio.dataset.storage import containers


class ContainersConf(AudioSourceConf):
    """Files of Hugging Face's data sets (parquet), shards of MosaicML's (mds) or chunks of
    Lightning's (litdata) streaming data sets, or folders of them.
    """

    paths: Paths


def _containers(conf: ContainersConf) -> list[ListSource]:
    path = _list_of_containers(expanded(conf.paths), conf.type)
    return [ListSource(path, "shard", conf.layout)]


def _list_of_containers(paths: Sequence[str], kind: str) -> str:
    """Return the shard list of files of a kind, such as parquet, and of all such files below
    folders.
    """
    files = [
        file
        for path in paths
        for file in (_files_below(path, kind) if Path(path).is_dir() else [path])
    ]
    return write_shard_list(folder_beside(files[0]), [ShardFiles(file) for file in files])


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


CONTAINERS = listed(ContainersConf, _containers)
