"""`model_conf` of models that compare chunks with full context. Keys and defaults are WeNet's."""

from __future__ import annotations

from wenet_uio.config import Config, ConfigError
from wenet_uio.config.base import AboveZero, NotNegative, ZeroOrMore
from wenet_uio.config.model import CtcAttentionConf


class CtlConf(CtcAttentionConf):
    """Weights of a model with CTC and attention that also compares frames with chunks to those with
    full context.
    """

    ctl_weight: ZeroOrMore = 1.0
    """Weight of the contrastive loss."""
    n_negatives: NotNegative = 0
    """Other frames to which each frame is compared; 0: no contrastive loss."""
    logit_temp: AboveZero = 0.1
    """Temperature: the similarities (-1 to 1) are divided by it."""


def check_chunks(config: Config, where: str) -> Config:
    """Return the config if its encoder has chunks.

    Raises:
        ConfigError: it has none, so there is nothing to compare with full context.
    """
    encoder = config.encoder_conf
    draws_chunk_size = getattr(encoder, "use_dynamic_chunk", False)
    fixed_chunk_size = getattr(encoder, "static_chunk_size", 0)
    if not draws_chunk_size and not fixed_chunk_size:
        raise ConfigError(
            f"{where}: encoder_conf.use_dynamic_chunk: false: "
            "ctl_model compares chunks with full context; set it to true"
        )

    return config
