"""What `model` of NeMo holds besides data, tokenizer and optimizer: values of the file, and an
architecture, which is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.config.base import ConfigError

ENCODER = {
    "d_model": "output_size",
    "n_layers": "num_blocks",
    "n_heads": "attention_heads",
    "conv_kernel_size": "cnn_module_kernel",
    "dropout": "dropout_rate",
}
"""{key of NeMo's Conformer: key of encoder_conf}."""
OWN_PARTS = ("encoder", "encoder_conf")
"""Keys of Config that show that a file has an architecture of this project."""


def check_model(
    model: Mapping[str, Any], where: str, notes: list[str], *, has_encoder: bool
) -> None:
    """Note keys that are not read.

    Args:
        model: keys of `model` of NeMo without those of data, tokenizer and optimizer.
        where: beginning of messages.
        notes: gets one line for all keys.
        has_encoder: whether the config has an encoder of this project.

    Raises:
        ConfigError: the keys describe an architecture, and the config has no encoder of this
            project.
    """
    parts = sorted(str(name) for name, part in model.items() if isinstance(part, Mapping))
    if parts and not has_encoder:
        raise ConfigError(
            f"{where}: the architecture of NeMo ({', '.join(parts)}) is not read; write at the top "
            f"of the yaml, or as overrides, {_section(model)}"
        )
    if parts:
        notes.append(
            f"{where}: the architecture of NeMo ({', '.join(parts)}) is not read: encoder, decoder "
            "and model_conf of this yaml are used"
        )


def _section(model: Mapping[str, Any]) -> str:
    """Return a section for the encoder of NeMo, as far as its keys have equals."""
    encoder = model.get("encoder")
    encoder = encoder if isinstance(encoder, Mapping) else {}
    conf = {
        ours: encoder[theirs]
        for theirs, ours in ENCODER.items()
        if isinstance(encoder.get(theirs), (int, float))
    }
    width, factor = conf.get("output_size"), encoder.get("ff_expansion_factor")
    if isinstance(width, int) and isinstance(factor, int):
        conf["linear_units"] = width * factor

    shown = ", ".join(f"{key}: {value}" for key, value in conf.items())
    is_squeezeformer = "squeeze" in str(encoder.get("_target_", "")).lower()
    name = "squeezeformer" if is_squeezeformer else "conformer"
    return f"encoder: {name} and encoder_conf: {{{shown or 'output_size: 256, num_blocks: 12'}}}"
