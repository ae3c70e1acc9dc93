"""The interface of the layers of encoders, and their attention.

The layers of a LayeredEncoder have `forward(x, bias, pos_emb, padded, att_past, cnn_past)`:

    x           (B, T, D)
    bias        added to the attention scores, broadcasts to (B, H, T, K); None: every frame sees every frame
    pos_emb     (1, K, D)
    padded      (B, T, 1) bool, True where x is padding; None: no padding
    att_past    (B, H, C, 2 D / H), keys and values of the C frames before x; None outside of streaming
    cnn_past    (B, D, frames), past input of the convolutions; None outside of streaming

A layer returns its output (B, T, D), and both pasts for the next chunk.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from wenet_uio.config.encoder import EncoderConf
from wenet_uio.models.attention import (
    FireredAttention,
    MultiHeadedAttention,
    RelPositionMultiHeadedAttention,
)
from wenet_uio.models.rotary import RotaryMultiHeadedAttention
from wenet_uio.models.shaw import ShawMultiHeadedAttention

SELF_ATTENTIONS: dict[str, type[MultiHeadedAttention]] = {
    "selfattn": MultiHeadedAttention,
    "rel_selfattn": RelPositionMultiHeadedAttention,
    "rope_abs_selfattn": RotaryMultiHeadedAttention,
    "firered_rel_selfattn": FireredAttention,
    "shaw_rel_selfattn": ShawMultiHeadedAttention,
}


@runtime_checkable
class LocalLayer(Protocol):
    """A layer whose outputs may depend on neighbouring inputs alone, see recording.py."""

    def reach(self) -> tuple[int, int] | None:
        """Return how many input frames before and after a frame its output depends on; None: all
        frames.
        """
        ...


def self_attention(conf: EncoderConf) -> MultiHeadedAttention:
    """Build the attention module `conf.selfattention_layer_type`."""
    attention = SELF_ATTENTIONS[conf.selfattention_layer_type]
    return attention(conf.output_size, conf.attention_dropout_rate, conf)
