"""Checks that need the whole config: which parts a model has, and its losses beside the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.config import Config
from wenet_uio.config.dataset import DatasetConf, ViewsConf
from wenet_uio.config.family import FAMILIES, families, family_of
from wenet_uio.config.model import DECODER_CONFS
from wenet_uio.config.named_code import is_third_party


def add_own_parts(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Add the default predictor and joint of families that have them; refuse these keys for other
    families.

    Raises:
        ConfigError: a part is one of another family.
    """
    name = values.get("model")
    if name is None:
        name = Config.model_fields["model"].default

    # An unknown family has no defaults; it is reported with the other problems.
    defaults: Mapping[str, str] = {}
    if isinstance(name, str) and (name in FAMILIES or is_third_party(name)):
        defaults = family_of(name).parts.defaults

    for key in ("predictor", "joint"):
        if key not in defaults:
            _refuse_part(values, key, where)

    completed: dict[str, Any] = dict(defaults)
    for key, value in values.items():
        if value is not None or key not in defaults:
            completed[key] = value

    return completed


def _refuse_part(values: dict[str, Any], key: str, where: str) -> None:
    """Raise a ConfigError if the yaml has a part that only other families have."""
    for name in (key, f"{key}_conf"):
        if values.get(name) is None:
            continue

        owners = [family.name for family in families() if key in family.parts.own]
        if not owners:
            raise ConfigError(f"{where}: {name}: no model of this installation has this key")
        raise ConfigError(
            f"{where}: {name}: only a {' or '.join(owners)} has this key; add `model: "
            f"{owners[0]}` or remove it"
        )


def check_parts(config: Config, where: str) -> None:
    """Refuse parts that do not work together.

    Raises:
        ConfigError: one line with the part and the possible ones.
    """
    allowed = config.family.parts.allowed
    for key, names in allowed.items():
        if getattr(config, key) not in names:
            known = " or ".join(str(name or "null") for name in names)
            raise ConfigError(
                f"{where}: {key}: {getattr(config, key)}: model {config.model} needs {key}: {known}"
            )

    if config.decoder is None and None not in allowed.get("decoder", ()):
        raise ConfigError(f"{where}: decoder: null: model {config.model} needs a decoder")

    own_decoders = config.family.parts.own.get("decoder", {})
    if config.decoder is None or config.decoder in DECODER_CONFS or config.decoder in own_decoders:
        return

    # This loads every family, so it is done for the message alone.
    for other in families():
        if config.decoder in other.parts.own.get("decoder", {}):
            raise ConfigError(
                f"{where}: decoder: {config.decoder}: only model {other.name} has this decoder"
            )


NO_CTC = "there is no CTC loss; set model_conf.ctc_weight above 0"


def refuse_derived(values: dict[str, Any], where: str) -> None:
    """Refuse keys that follow from other keys.

    Raises:
        ConfigError: the yaml has dataset_conf.views.
    """
    section = values.get("dataset_conf")
    if isinstance(section, dict) and "views" in section:
        raise ConfigError(
            f"{where}: dataset_conf.views: this is no key of a train.yaml; cr_loss_scale gives two "
            "views"
        )


def set_views(config: Config, where: str) -> Config:
    """Set the views of each training utterance that `cr_loss_scale` asks for.

    Raises:
        ConfigError: the rest of the config does not allow two views.
    """
    if not config.cr_loss_scale:
        return config

    data = config.dataset_conf
    obstacle = ""
    if config.model_conf.ctc_weight == 0:
        obstacle = NO_CTC
    elif config.family.training.views_obstacle:
        obstacle = f"model: {config.family.training.views_obstacle}"
    elif not _views_differ(data):
        obstacle = "the two views are equal; set dataset_conf.spec_aug: true, with masks"
    elif data.batch_conf.batch_type == "static" and data.batch_conf.batch_size == 1:
        obstacle = "two views do not fit batch_conf.batch_size 1; set it to 2 or more"

    if obstacle:
        raise ConfigError(f"{where}: cr_loss_scale {config.cr_loss_scale}: {obstacle}")

    views = ViewsConf(number=2, time_mask_ratio=config.cr_time_mask_ratio)
    return config.model_copy(update={"dataset_conf": data.model_copy(update={"views": views})})


def _views_differ(data: DatasetConf) -> bool:
    """Tell whether the two views of an utterance differ: by masks, or by substituted frames."""
    num_masks = data.spec_aug_conf.num_t_mask + data.spec_aug_conf.num_f_mask
    has_masks = data.spec_aug and num_masks > 0
    has_substitutions = data.spec_sub and data.spec_sub_conf.num_t_sub > 0
    return has_masks or has_substitutions


def check_ctc_losses(config: Config, where: str) -> None:
    """Check label smoothing of CTC, its units, and the blocks of `interctc_layer_idx`.

    Raises:
        ConfigError: the encoder or the model does not have such a CTC loss.
    """
    if config.ctc_label_smoothing and config.model_conf.ctc_weight == 0:
        raise ConfigError(f"{where}: ctc_label_smoothing: {NO_CTC}")

    if config.ctc_texts:
        _check_ctc_texts(config, where)

    blocks = config.interctc_layer_idx
    if not blocks:
        if config.interctc_conditioning:
            raise ConfigError(f"{where}: interctc_conditioning: it needs interctc_layer_idx")
        return

    num_blocks = config.encoder_conf.num_blocks
    obstacle = ""
    if list(blocks) != sorted(set(blocks)) or blocks[-1] >= num_blocks:
        obstacle = (
            f"expected rising numbers from 1 to {num_blocks - 1}, below num_blocks {num_blocks}"
        )
    elif config.model_conf.ctc_weight == 0:
        obstacle = NO_CTC
    elif not config.family.training.inter_ctc:
        obstacle = f"model {config.model} has no CTC loss in the middle of its encoder"

    if obstacle:
        raise ConfigError(f"{where}: interctc_layer_idx {list(blocks)}: {obstacle}")


def _check_ctc_texts(config: Config, where: str) -> None:
    """Raise a ConfigError if CTC cannot learn the units of the texts of `ctc_texts` alone."""
    obstacle = NO_CTC if config.model_conf.ctc_weight == 0 else ""
    if config.tokenizer_conf.sample_alpha is not None:
        obstacle = "with tokenizer_conf.sample_alpha a text has other units in each epoch"
    if obstacle:
        raise ConfigError(f"{where}: ctc_texts {config.ctc_texts}: {obstacle}")
