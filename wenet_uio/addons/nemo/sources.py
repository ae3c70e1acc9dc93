"""Sources of NeMo: manifests of audio files, and tars with their manifests."""

from __future__ import annotations

import os
import re
from typing import Any

from pydantic import model_validator

from wenet_uio.config.source import Buckets
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.formats.data_list import ShardFiles, pair_manifests
from wenet_uio.dataset.sources.lists import (
    AudioSourceConf,
    Patterns,
    expanded,
    folder_beside,
    listed,
    local_manifest,
    write_shard_list,
)

SEPARATOR = re.compile(r",(?![^{]*\})\s*")
"""A comma between two paths, outside of braces: `{a,b}` is a pattern."""


class NemoConf(AudioSourceConf):
    """NeMo's manifest of audio files."""

    manifest_filepath: Buckets
    """Also called data_list."""

    @model_validator(mode="before")
    @classmethod
    def _second_name(cls, values: Any) -> Any:
        """Accept `data_list` for `manifest_filepath`."""
        if isinstance(values, dict) and values.get("data_list") is not None:
            rest = {name: value for name, value in values.items() if name != "data_list"}
            return {**rest, "manifest_filepath": values["data_list"]}
        return values


class NemoTarredConf(AudioSourceConf):
    """Tars of audio, with NeMo's manifests of their texts."""

    manifest_filepath: Buckets
    tarred_audio_filepaths: Buckets


def _manifest_lists(conf: NemoConf) -> list[ListSource]:
    paths = map(local_manifest, expanded(_split_paths(conf.manifest_filepath)))
    return [ListSource(path, "raw", conf.layout) for path in paths]


def _tar_lists(conf: NemoTarredConf) -> list[ListSource]:
    shards = _pair_tars(
        _split_paths(conf.tarred_audio_filepaths), _split_paths(conf.manifest_filepath)
    )
    first = shards[0].manifest
    assert first is not None
    path = write_shard_list(folder_beside(first), shards)
    return [ListSource(path, "shard", conf.layout)]


def _split_paths(paths: Buckets) -> Patterns:
    """Return the paths of NeMo's `a.json,b.json`. The name of an existing file is one path."""
    if not isinstance(paths, str):
        return [_split_paths(path) for path in paths]

    parts = SEPARATOR.split(paths)
    return paths if len(parts) == 1 or os.path.exists(paths) else parts  # noqa: PTH110


def _pair_tars(tars: Patterns, manifests: Patterns) -> list[ShardFiles]:
    """Return tars with their manifests. Two lists of one length belong together item by item: one
    manifest for N tars each.
    """
    if isinstance(tars, str) or isinstance(manifests, str) or len(tars) != len(manifests):
        return pair_manifests(expanded(tars), expanded(manifests))
    return [shard for pair in zip(tars, manifests, strict=True) for shard in _pair_tars(*pair)]


NEMO = listed(NemoConf, _manifest_lists)
NEMO_TARRED = listed(NemoTarredConf, _tar_lists)
