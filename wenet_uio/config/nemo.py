"""How the sections of NeMo in a yaml are known. The add-on `nemo` converts them to keys of Config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FROM_NEMO = "wenet_uio.addons.nemo.config.convert:from_nemo"
"""Converts the sections of NeMo in a yaml."""
WITH_OVERRIDES = "wenet_uio.addons.nemo.config.changes:apply_overrides"
"""Converts such a yaml with overrides, or a yaml with overrides of NeMo's keys."""
LOADERS = ("train_ds", "validation_ds", "test_ds")
OTHER_NAMES = {"training_ds": "train_ds", "val_ds": "validation_ds", "dev_ds": "validation_ds"}
"""{other name of a section: its name}."""
SHARED = ("tokenizer", "optim")
"""Sections of NeMo whose names are keys of Config too. Here they are texts, in NeMo mappings."""
OF_FILE = (
    "trainer",
    "exp_manager",
    "hydra",
    "name",
    "mode",
    "do_training",
    "do_testing",
    "init_from_nemo_model",
    "init_from_pretrained_model",
    "init_from_ptl_ckpt",
    "init_strict",
)
"""Keys at the top of NeMo's files."""
SENTENCEPIECE_MODEL = "tokenizer.model"
"""Name of the model in NeMo's folder of a tokenizer."""
OF_NEMO_ALONE = (*LOADERS, *OTHER_NAMES, "trainer", "exp_manager")
"""Keys at the top that show that a file is NeMo's."""
VARIABLES = (
    "sample_rate",
    "labels",
    "dropout",
    "repeat",
    "separable",
    "kernel_size_factor",
    "timesteps",
    "num_classes",
    "model_defaults",
)
"""Keys at the top of NeMo's files that other keys refer to."""


def has_nemo_sections(values: Mapping[str, Any]) -> bool:
    """Tell whether a yaml has a section of NeMo, or a reference such as `${model.sample_rate}`."""
    if any(key in values for key in OF_NEMO_ALONE):
        return True
    if any(isinstance(values.get(key), Mapping) for key in ("model", *SHARED)):
        return True

    data = values.get("data")
    if isinstance(data, Mapping) and any(key in data for key in (*LOADERS, *OTHER_NAMES, *SHARED)):
        return True

    return "${" in repr(values)


def is_nemo_path(path: tuple[str, ...]) -> bool:
    """Tell whether a path belongs to NeMo's part of a config, rather than to a key of Config."""
    first, *below = path
    if first in (*LOADERS, *OTHER_NAMES, *OF_FILE, *VARIABLES):
        return True
    if not below:
        return False
    if first == "data":
        return below[0] in (*LOADERS, *OTHER_NAMES)
    return first in ("model", *SHARED)
