"""Checks of the losses beside the usual ones, which need the whole config."""

from __future__ import annotations

from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.config import Config
from wenet_uio.config.dataset import DatasetConf, ViewsConf

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


def with_views(config: Config, where: str) -> Config:
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
    elif not _differ(data):
        obstacle = "the two views are equal; set dataset_conf.spec_aug: true, with masks"
    elif data.batch_conf.batch_type == "static" and data.batch_conf.batch_size == 1:
        obstacle = "two views do not fit batch_conf.batch_size 1; set it to 2 or more"

    if obstacle:
        raise ConfigError(f"{where}: cr_loss_scale {config.cr_loss_scale}: {obstacle}")

    views = ViewsConf(number=2, time_mask_ratio=config.cr_time_mask_ratio)
    return config.model_copy(update={"dataset_conf": data.model_copy(update={"views": views})})


def _differ(data: DatasetConf) -> bool:
    """Tell whether the two views of an utterance differ."""
    masks = data.spec_aug and (data.spec_aug_conf.num_t_mask or data.spec_aug_conf.num_f_mask)
    return bool(masks or (data.spec_sub and data.spec_sub_conf.num_t_sub))


def check_ctc_losses(config: Config, where: str) -> None:
    """Check label smoothing of CTC, its units, and the blocks of `interctc_layer_idx`.

    Raises:
        ConfigError: the encoder or the model does not have such a CTC loss.
    """
    if config.ctc_label_smoothing and config.model_conf.ctc_weight == 0:
        raise ConfigError(f"{where}: ctc_label_smoothing: {NO_CTC}")

    if config.ctc_texts:
        _check_texts(config, where)

    blocks, last = config.interctc_layer_idx, config.encoder_conf.num_blocks
    obstacle = ""
    if not blocks:
        obstacle = "it needs interctc_layer_idx" if config.interctc_conditioning else ""
        blocks = None
    elif list(blocks) != sorted(set(blocks)) or blocks[-1] >= last:
        obstacle = f"expected rising numbers from 1 to {last - 1}, below num_blocks {last}"
    elif config.model_conf.ctc_weight == 0:
        obstacle = NO_CTC
    elif not config.family.training.inter_ctc:
        obstacle = f"model {config.model} has no CTC loss in the middle of its encoder"

    if obstacle:
        name = "interctc_conditioning" if blocks is None else f"interctc_layer_idx {list(blocks)}"
        raise ConfigError(f"{where}: {name}: {obstacle}")


def _check_texts(config: Config, where: str) -> None:
    """Check `ctc_texts`; raises as `check_ctc_losses`."""
    obstacle = NO_CTC if config.model_conf.ctc_weight == 0 else ""
    if config.tokenizer_conf.sample_alpha is not None:
        obstacle = "with tokenizer_conf.sample_alpha a text has other units in each epoch"
    if obstacle:
        raise ConfigError(f"{where}: ctc_texts {config.ctc_texts}: {obstacle}")
