"""Sources of Lhotse: files of cuts, and folders of its Shar."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.config.source import Paths
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.formats.data_list import pair_manifests
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.lhotse_cuts import folder_beside_shar, list_of_cuts
from wenet_uio.dataset.sources.lists import (
    AudioSourceConf,
    expanded,
    listed,
    write_shard_list,
)


class CutsConf(AudioSourceConf):
    """A JSONL file of cuts of audio files; NeMo calls this type lhotse."""

    cuts_path: Paths


class SharConf(AudioSourceConf):
    """A folder of Lhotse's Shar."""

    shar_path: Paths


def _cuts(conf: CutsConf) -> list[ListSource]:
    paths = map(list_of_cuts, expanded(conf.cuts_path))
    return [ListSource(path, "raw", conf.layout) for path in paths]


def _shars(conf: SharConf) -> list[ListSource]:
    paths = map(_list_of_shar, expanded(conf.shar_path))
    return [ListSource(path, "shard", conf.layout) for path in paths]


def _list_of_shar(folder: str) -> str:
    """Return the shard list of a folder.

    Raises:
        ListError: its tars and files of cuts do not fit together.
    """
    tars = sorted(map(str, Path(folder).glob("recording.*.tar")))
    cuts = sorted(map(str, Path(folder).glob("cuts.*.jsonl*")))
    if not tars or len(tars) != len(cuts):
        raise ListError(
            f"{folder}: expected as many recording.*.tar as cuts.*.jsonl.gz of Lhotse's Shar, "
            f"found {len(tars)} and {len(cuts)}"
        )

    return write_shard_list(folder_beside_shar(cuts[0]), pair_manifests(tars, cuts))


CUTS = listed(CutsConf, _cuts)
SHAR = listed(SharConf, _shars)
