"""A tiny Whisper of random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from wenet_uio.config import Config, parse_config
from wenet_uio.models import build_model

if TYPE_CHECKING:
    from wenet_uio.addons.families.whisper.model import Whisper

TINY = {"output_size": 16, "attention_heads": 2, "linear_units": 16, "num_blocks": 1}
SPECIAL = {
    **{"eot": 20, "sot": 21, "translate": 24, "transcribe": 25, "sot_prev": 26},
    **{"no_speech": 27, "no_timestamps": 28, "timestamp_begin": 29},
}


def tiny_config(**sections: Any) -> Config:
    """The config of a whisper of English and Chinese with 1501 timestamps."""
    values = {
        "model": "whisper",
        "encoder": "transformer",
        "encoder_conf": {**TINY, "input_layer": "conv1d2", "pos_enc_layer_type": "abs_pos_whisper"},
        "decoder": "transformer",
        "decoder_conf": {
            **{key: TINY[key] for key in ("attention_heads", "linear_units", "num_blocks")},
            "input_layer": "embed_learnable_pe",
        },
        "ctc_conf": {"ctc_blank_id": 27},
        "tokenizer": "whisper",
        "tokenizer_conf": {"special_tokens": SPECIAL, "is_multilingual": True, "num_languages": 2},
        "input_dim": 8,
        **sections,
    }
    return parse_config(values, "tiny")


def tiny(**sections: Any) -> Whisper:
    """A random whisper."""
    torch.manual_seed(3)
    model = cast("Whisper", build_model(tiny_config(**sections)).eval())
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model
