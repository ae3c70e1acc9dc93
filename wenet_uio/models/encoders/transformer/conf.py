"""`encoder_conf` of the transformer. Keys and defaults are WeNet's."""

from __future__ import annotations

from wenet_uio.config.encoder import (
    FeedForwardConf,
    LimitedContextConf,
    PositionEncoding,
    SelfAttention,
)


class TransformerEncoderConf(LimitedContextConf, FeedForwardConf):
    """Transformer (Vaswani et al. 2017)."""

    pos_enc_layer_type: PositionEncoding = "abs_pos"
    selfattention_layer_type: SelfAttention = "selfattn"
    normalize_before: bool = True
    """Layer normalisation before each module (true) or after it (false)."""
