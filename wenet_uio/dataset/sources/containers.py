"""Sources whose files hold many samples each: parquet, MosaicML's MDS, Lightning's LitData."""

from __future__ import annotations

import re
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
    """Return the shard list of files, and of all files of the type below folders."""
    files: list[str] = []
    for path in expanded(conf.paths):
        if Path(path).is_dir():
            files += _files_below(path, conf.type)
        else:
            files.append(path)

    path = write_shard_list(folder_beside(files[0]), [ShardFiles(file) for file in files])
    return [ListSource(path, "shard", conf.layout)]


def _files_below(folder: str, kind: str) -> list[str]:
    files = [str(path) for path in Path(folder).rglob("*") if containers.kind_of(str(path)) == kind]
    if not files:
        raise ListError(f"{folder}: no files of type {kind} in it; compressed shards are not read")
    return sorted(files, key=_number_order)


def _number_order(name: str) -> list[tuple[int, str]]:
    """Return a key to sort by: chunk-0-9 is before chunk-0-10."""
    order: list[tuple[int, str]] = []
    for piece in re.split(r"(\d+)", name):
        order.append((int(piece), "") if piece.isdecimal() else (-1, piece))
    return order


CONTAINERS = listed(ContainersConf, _containers)
