"""`model_conf` of models that compare chunks with full context. Keys and defaults are WeNet's."""

from __future__ import annotations

from pydantic import Field

from wenet_uio.config import Config, ConfigError
from wenet_uio.config.base import NotNegative
from wenet_uio.config.model import CtcAttentionConf


class CtlConf(CtcAttentionConf):
    """Weights of a model with CTC and attention that also compares frames with chunks to those with
    full context.
    """

    ctl_weight: float = Field(default=1.0, ge=0)
    """Weight of the contrastive loss."""
    n_negatives: NotNegative = 0
    """Other frames to which each frame is compared; 0: no contrastive loss."""
    logit_temp: float = Field(default=0.1, gt=0)
    """Temperature: the similarities (-1 to 1) are divided by it."""


def check_chunks(config: Config, where: str) -> Config:
    """Return the config if its encoder has chunks.

    Raises:
        ConfigError: it has none, so there is nothing to compare with full context.
    """
    encoder = config.encoder_conf
    sizes = [getattr(encoder, key, 0) for key in ("use_dynamic_chunk", "static_chunk_size")]
    if not any(sizes):
        raise ConfigError(
            f"{where}: encoder_conf.use_dynamic_chunk: false: "
            "ctl_model compares chunks with full context; set it to true"
        )

    return config
