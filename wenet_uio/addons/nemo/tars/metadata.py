"""Read and write metadata.yaml of NeMo's tarred sets: how a set was made, and its additions."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from wenet_uio.addons.nemo.tars.shard import NemoOptions, NemoStoring
from wenet_uio.base.files import digest_of, written_aside

NAME = "metadata.yaml"
Metadata = dict[str, Any]


def new_metadata(options: NemoOptions, entries: int) -> Metadata:
    """Return metadata of a set of `entries` entries, with the keys of NeMo's converter."""
    storing = options.storing
    return {
        "created_datetime": _current_time(),
        "version": 0,
        "num_samples_per_shard": entries // options.num_shards,
        "is_concatenated_manifest": False,
        "dataset_config": {
            "num_shards": options.num_shards,
            "shuffle": options.shuffle_seed is not None,
            "max_duration": options.max_duration,
            "min_duration": options.min_duration,
            "shuffle_seed": options.shuffle_seed,
            "sort_in_shards": storing.sort_in_shards,
            "slice_with_offset": storing.slice_with_offset,
            "shard_manifests": storing.shard_manifests,
            "keep_files_together": options.keep_files_together,
            "force_codec": storing.force_codec,
        },
        "history": [],
    }


def extended_metadata(metadata: Metadata, manifest: str, shards: int) -> Metadata:
    """Return metadata after a manifest was added in `shards` tars.

    The former metadata goes to the history.
    """
    former = {key: value for key, value in metadata.items() if key != "history"}
    added = {"manifest": str(manifest), "sha256": digest_of(manifest), "num_shards": shards}
    return {
        **metadata,
        "created_datetime": _current_time(),
        "version": metadata.get("version", 0) + 1,
        "is_concatenated_manifest": True,
        "dataset_config": {
            **metadata["dataset_config"],
            "num_shards": num_shards(metadata) + shards,
        },
        "history": [*(metadata.get("history") or []), {**former, "added": added}],
    }


def read(folder: Path) -> Metadata:
    """Return the metadata of a set.

    Raises:
        ValueError: there is no metadata.yaml, or it has another form.
    """
    path = folder / NAME
    if not path.is_file():
        raise ValueError(
            f"{path}: not found; give --target_dir of a set that convert_to_tarred.py or NeMo made"
        )

    metadata = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(metadata, dict) or not isinstance(metadata.get("dataset_config"), dict):
        raise ValueError(f"{path}: not the metadata of a tarred set; expected dataset_config in it")

    return metadata


def write(folder: Path, values: Metadata) -> None:
    """Write metadata.yaml."""
    with written_aside(folder / NAME, "w") as file:
        yaml.safe_dump(values, file, sort_keys=False, allow_unicode=True)


def has_manifest(metadata: Metadata, manifest: str) -> bool:
    """Tell whether a manifest of this content was added before."""
    digest = digest_of(manifest)
    additions = [version.get("added", {}) for version in metadata.get("history") or []]
    return any(added.get("sha256") == digest for added in additions)


def num_shards(metadata: Metadata) -> int:
    """Return the number of tars of the set."""
    return int(metadata["dataset_config"]["num_shards"])


def samples_per_shard(metadata: Metadata) -> int:
    """Return entries of one tar."""
    return int(metadata.get("num_samples_per_shard") or 1)


def stored_options(metadata: Metadata) -> NemoOptions:
    """Return the options with which the set was made."""
    conf = metadata["dataset_config"]
    shuffle_seed = None
    if conf.get("shuffle"):
        shuffle_seed = conf.get("shuffle_seed") or 0

    return NemoOptions(
        num_shards=int(conf["num_shards"]),
        min_duration=conf.get("min_duration"),
        max_duration=conf.get("max_duration"),
        shuffle_seed=shuffle_seed,
        keep_files_together=bool(conf.get("keep_files_together")),
        storing=NemoStoring(
            slice_with_offset=bool(conf.get("slice_with_offset")),
            force_codec=conf.get("force_codec"),
            sort_in_shards=bool(conf.get("sort_in_shards")),
            shard_manifests=bool(conf.get("shard_manifests", True)),
        ),
    )


def _current_time() -> str:
    return datetime.now().astimezone().strftime("%m-%d-%Y %H-%M-%S")
