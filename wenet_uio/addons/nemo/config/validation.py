"""`validation_ds` of NeMo as `cv_data`, the validation data of train.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.addons.nemo.config.batches import BATCHES, FILTERS
from wenet_uio.addons.nemo.config.keys import check_keys, refuse_missing
from wenet_uio.addons.nemo.config.loader import KNOWN
from wenet_uio.addons.nemo.config.sources import sources_of, without_missing_paths
from wenet_uio.config.weighted_paths import WEIGHTED, without_weights


def validation_data(
    section: Mapping[str, Any], where: str, notes: list[str]
) -> dict[str, Any] | None:
    """Return the sources of a loader for validation; None if it names no data.

    Validation reads every utterance once, in batches like those of training.

    Args:
        section: keys of the loader; none is null.
        where: beginning of messages.
        notes: gets a line for each key that is not needed.

    Raises:
        ConfigError: a key is unknown, or the data cannot be read.
    """
    datasets = section.get("datasets")
    common = {key: value for key, value in section.items() if key != "datasets"}
    parts = datasets.values() if isinstance(datasets, Mapping) else [{}]
    sources: list[dict[str, Any]] = []

    for part in parts:
        loader = check_keys({**common, **part}, KNOWN, where, notes)
        loader = without_missing_paths(loader, where, notes)
        sources += sources_of(_without_batches(loader, where, notes), where)

    return {"sources": list(map(_unweighted, sources))} if sources else None


def _unweighted(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a source without its weight and those of its members and paths: with weights, some
    utterances would be read twice and others never.
    """
    kept = {key: value for key, value in source.items() if key != "weight"}
    for key in kept.keys() & {*WEIGHTED, "tarred_audio_filepath"}:
        kept[key] = without_weights(kept[key])
    if isinstance(kept.get("input_cfg"), list):
        kept["input_cfg"] = list(map(_unweighted, kept["input_cfg"]))
    return kept


def _without_batches(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return a loader without filters and sizes of batches, and note them."""
    if batches := [key for key in BATCHES if key in section]:
        notes.append(
            f"{where}: {', '.join(batches)}: not read here: validation has batches like those of "
            "training, dataset_conf.batch_conf"
        )
    if filters := [key for key in FILTERS if key in section]:
        notes.append(
            f"{where}: {', '.join(filters)}: not read here: validation reads every utterance; give "
            "a shorter list as --cv_data"
        )

    if section.get("trim_silence"):
        notes.append(
            f"{where}.trim_silence: not read here: validation and recognition read whole utterances"
        )

    loader = {key: value for key, value in section.items() if key not in (*BATCHES, *FILTERS)}
    refuse_missing(loader, where, "model.validation_ds")
    return loader
