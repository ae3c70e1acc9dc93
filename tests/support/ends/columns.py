"""The columns of the matrix of ends: how a model is trained.

A column of each family and of each encoder is made from the records in code. A new one is a column
by itself, or its test says that this file lacks its small sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tests.models.test_batches import BRANCH, EFFICIENT, KINDS, SQUEEZE, ZIPFORMER
from tests.support.ends.rows import BINS
from tests.support.models.digit_whisper import digit_whisper, write_vocabulary
from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.config.encoder_kind import ENCODERS
from wenet_uio.config.family import Family, families
from wenet_uio.config.named_code import Loaded

SMALL = {"attention_heads": 2, "linear_units": 32, "num_blocks": 1}
ENCODER = {**SMALL, "output_size": 16, "cnn_module_kernel": 7}
BASE: dict[str, Any] = {
    "encoder": "conformer",
    "encoder_conf": ENCODER,
    "decoder": "transformer",
    "decoder_conf": SMALL,
    "tokenizer": "char",
    "tokenizer_conf": {"symbol_table_path": "units.txt"},
    "dataset_conf": {
        "fbank_conf": {"num_mel_bins": BINS},
        "batch_conf": {"batch_type": "static", "batch_size": 5},
    },
    "scheduler_conf": {"warmup_steps": 20},
    "max_epoch": 2,
}
"""The usual column: a small model, and the defaults for everything else."""
MODEL = ("encoder", "encoder_conf", "decoder", "decoder_conf")
"""Keys of BASE that a column of another model replaces as a whole."""


@dataclass(frozen=True)
class Column:
    """How a model is trained."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of train.yaml, above those of BASE and of the row."""
    options: tuple[str, ...] = ()
    """Options of train.py."""
    ranks: int = 1
    starts_from: bool = False
    """Whether the training starts from a model that was trained before."""
    prepare: Callable[[Path], object] | None = None
    """Writes files that the yaml names to the folder of the cell."""
    obstacle: str = ""
    """Why there is no such training."""
    package: str = ""
    """Package that it needs and that the tests do not install."""


FAMILY_KEYS: dict[str, dict[str, Any]] = {
    "asr_model": {},
    "transducer": {
        "model_conf": {"transducer_weight": 0.5, "ctc_weight": 0.2, "attention_weight": 0.3},
        "predictor_conf": {"embed_size": 16, "output_size": 16, "hidden_size": 16},
        "joint_conf": {"join_dim": 16},
    },
    "whisper": {
        **digit_whisper(1),
        "dataset_conf": {
            "feats_type": "log_mel_spectrogram",
            "log_mel_spectrogram_conf": {"num_mel_bins": BINS, "pad_or_trim": False},
        },
    },
    "ctl_model": {
        "encoder": "dual_transformer",
        "encoder_conf": {**SMALL, "output_size": 16, "use_dynamic_chunk": True},
    },
    "firered": {"tokenizer_conf": {"special_tokens": {"<sos>": 5, "<eos>": 5}}},
    "paraformer": {
        **{key: tiny_paraformer()[key] for key in MODEL},
        "model_conf": {"ctc_weight": 0.3},
        "tokenizer": "paraformer",
        "tokenizer_conf": {"special_tokens": {"<sos>": 5, "<eos>": 5}, "seg_dict_path": "seg_dict"},
    },
    "sensevoice_small": {
        "encoder": "sanm_encoder_with_tp",
        "encoder_conf": {**SMALL, "output_size": 16, "tp_blocks": 1},
        "decoder": None,
    },
}
"""Small sizes of each family."""
ENCODER_KEYS: dict[str, dict[str, Any]] = {
    "transformer": {**SMALL, "output_size": 16},
    "conformer": ENCODER,
    "branchformer": {"attention_heads": 2, "num_blocks": 1, "output_size": 16, **BRANCH},
    "e_branchformer": {**SMALL, "output_size": 16, **BRANCH},
    "squeezeformer": {**SQUEEZE, "output_size": 16, "attention_heads": 2},
    "efficientConformer": {
        **EFFICIENT,
        "output_size": 16,
        "attention_heads": 2,
        "stride_layer_idx": 1,
        "group_layer_idx": [0, 1, 2],
    },
    "firered_conformer": {**SMALL, "output_size": 16, **KINDS["conformer of firered"][1]},
    "dual_conformer": {**ENCODER, "use_dynamic_chunk": True},
    "sanm_encoder": {**SMALL, "output_size": 16},
    "sanm_encoder_with_tp": {**SMALL, "output_size": 16, "tp_blocks": 1},
    "zipformer": ZIPFORMER,
}
"""Small sizes of each encoder, by the first name of its record."""


def write_dictionary(folder: Path) -> None:
    """Write the dictionary of the tokenizer of a paraformer."""
    words = (word * count for word in "abc" for count in (2, 3))
    (folder / "seg_dict").write_text("".join(f"{word} {' '.join(word)}\n" for word in words))


PREPARATIONS = {"whisper": write_vocabulary, "paraformer": write_dictionary}
"""What writes the files that the yaml of a family names."""


def first_names() -> list[str]:
    """Return the first name of each encoder of this installation."""
    names: dict[str, str] = {}
    for name, use in ENCODERS.items():
        if Loaded(use).is_installed:
            names.setdefault(use, name)

    return list(names.values())


def column_of(family: Family) -> Column:
    keys = {"model": family.name, **FAMILY_KEYS[family.name]}
    prepare = PREPARATIONS.get(family.name)
    return Column(keys, prepare=prepare, obstacle=family.training.obstacle)


def with_encoder(name: str) -> Column:
    family = "ctl_model" if name.startswith("dual_") else "asr_model"
    return Column({"model": family, "encoder": name, "encoder_conf": ENCODER_KEYS[name]})


LAYER_NORM = {"encoder_conf": {"cnn_module_norm": "layer_norm"}}
NORMS: dict[str, dict[str, Any]] = {"batch norm": {}, "layer norm": LAYER_NORM}
TYPES: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": "fp32"},
    "bf16": {"dtype": "bf16"},
    "fp16": {"dtype": "fp16"},
}
INTERVALS = {"each step": 1, "some steps": 3, "no step": 1000}
USUAL = "the usual"
COLUMNS: dict[str, Column] = {
    USUAL: Column(),
    **{f"family {family.name}": column_of(family) for family in families()},
    **{f"encoder {name}": with_encoder(name) for name in first_names()},
    "bf16": Column({"dtype": "bf16"}),
    "fp16": Column({"dtype": "fp16"}),
    "layer norm": Column(LAYER_NORM),
    "two ranks": Column(ranks=2),
    "torch_fsdp on two ranks": Column(options=("--train_engine", "torch_fsdp"), ranks=2),
    "deepspeed on two ranks": Column(
        options=("--train_engine", "deepspeed"), ranks=2, package="deepspeed"
    ),
    "log_interval 1": Column({"log_interval": 1}),
    "log_interval 1000": Column({"log_interval": 1000}),
    "epochs of one step": Column({"dataset_conf": {"batch_conf": {"batch_size": 1000}}}),
    "stored frames of a frozen encoder": Column(
        {
            "store_frames": True,
            "freeze_modules": ["encoder"],
            "dataset_conf": {"spec_aug": False},
        }
    ),
    "--from": Column(starts_from=True),
}


def joined(*sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of all sections; a later one wins, and sections in them are joined."""
    result: dict[str, Any] = {}
    for section in sections:
        replaces = {"encoder", "decoder"} & section.keys()
        for name, value in section.items():
            is_of_other_model = name.removesuffix("_conf") in replaces
            if isinstance(value, Mapping) and not is_of_other_model:
                value = joined(result.get(name, {}), value)
            result[name] = value

    return result


CROSSED = {
    f"{norm}, {dtype}, log of {interval}": Column(
        joined(NORMS[norm], TYPES[dtype], {"log_interval": INTERVALS[interval]})
    )
    for norm, dtype, interval in product(NORMS, TYPES, INTERVALS)
}
"""Columns that meet every event."""
