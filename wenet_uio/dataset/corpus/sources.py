"""Sources in the formats of other tools as data lists; what their formats need is written once, beside them."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wenet_uio.config.mixture import SourceConf, load_mixture
from wenet_uio.dataset.formats.data_list import DataType, ListError, ShardFiles, expand, pair_manifests
from wenet_uio.dataset.formats.lhotse_cuts import folder_beside_shar, list_of_cuts
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage import cache, objects
from wenet_uio.files import written_aside


class SourceList(NamedTuple):
    """A list that a source is read from; the arguments of `open_list`."""

    data_list: str
    data_type: DataType
    layout: Layout


def lists_of_sources(sources: Sequence[SourceConf]) -> list[SourceList]:
    """The lists of sources and groups of them, each once; text without audio has none, and is left out."""
    lists: list[SourceList] = []
    for conf in sources:
        if conf.type not in ("txt", "txt_pair"):
            lists.extend(lists_of_sources(members_of(conf)) if conf.type == "group" else lists_of(conf))
    return list(dict.fromkeys(lists))


def members_of(group: SourceConf) -> list[SourceConf]:
    """The sources of a group, with what they inherit from it."""
    inner = load_mixture(group.input_cfg).sources if isinstance(group.input_cfg, str) else group.input_cfg
    return [conf.inheriting(group) for conf in inner]


def lists_of(conf: SourceConf) -> list[SourceList]:
    """The lists of one source of audio that is no group.

    Raises:
        ListError: a file is missing, or files do not fit one another.
    """
    layout = Layout(conf.key_ends or "auto", conf.audio_field, conf.text_field)
    match conf.type:
        case "nemo":
            return [SourceList(path, "raw", layout) for path in expanded(conf.manifest_filepath)]
        case "lhotse" | "lhotse_cuts":
            return [SourceList(list_of_cuts(path), "raw", layout) for path in expanded(conf.cuts_path)]
        case "nemo_tarred":
            return [SourceList(_list_of_tarred(conf), "shard", layout)]
        case "lhotse_shar":
            return [SourceList(_list_of_shar(folder), "shard", layout) for folder in expanded(conf.shar_path)]
        case _:
            return [SourceList(conf.data_list, conf.type, layout)]


def _list_of_tarred(conf: SourceConf) -> str:
    tars, manifests = expanded(conf.tarred_audio_filepaths), expanded(conf.manifest_filepath)
    remote = objects.is_remote(manifests[0])
    folder = cache.directory() / "lists" if remote else Path(objects.without_scheme(manifests[0])).parent
    return _written(folder, pair_manifests(tars, manifests))


def _list_of_shar(folder: str) -> str:
    tars, cuts = (sorted(glob.glob(f"{glob.escape(folder)}/{name}")) for name in ("recording.*.tar", "cuts.*.jsonl*"))
    if not tars or len(tars) != len(cuts):
        raise ListError(
            f"{folder}: expected as many recording.*.tar as cuts.*.jsonl.gz of Lhotse's Shar, "
            f"found {len(tars)} and {len(cuts)}"
        )
    return _written(folder_beside_shar(cuts[0]), pair_manifests(tars, cuts))


def _written(folder: Path, shards: Sequence[ShardFiles]) -> str:
    """Path of the shard list in `folder` that holds just these; its name says what it holds."""
    lines = [
        str(ShardFiles(_absolute(tar), _absolute(manifest), shard_id)) + "\n" for tar, manifest, shard_id in shards
    ]
    digest = hashlib.blake2b("".join(lines).encode(), digest_size=6).hexdigest()
    path = folder / f"shards.{digest}.list"
    if not path.exists():
        with written_aside(path, "w") as file:
            file.writelines(lines)
    return str(path)


def _absolute(path: str) -> str:
    return path if objects.is_remote(path) else os.path.abspath(objects.without_scheme(path))


def expanded(patterns: str | Sequence) -> list[str]:
    """Paths of a pattern, of a list of them, or of NeMo's buckets (a list of lists)."""
    if isinstance(patterns, str):
        return expand(patterns)
    return [path for pattern in patterns for path in expanded(pattern)]
