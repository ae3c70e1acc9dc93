"""Fixtures: models small enough for tests of parts and encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from wenet_uio.config import parse_config
from wenet_uio.models import ASRModel, build_model

VOCAB = 12
SMALL = {"output_size": 16, "attention_heads": 2, "linear_units": 32, "num_blocks": 2}
CAUSAL = {
    "causal": True,
    "cnn_module_kernel": 8,
    "cnn_module_norm": "layer_norm",
    "use_dynamic_chunk": True,
}


@pytest.fixture
def make_model() -> Callable[..., ASRModel]:
    """make_model(encoder, decoder, encoder_conf={}, model_conf={}) -> untrained model in evaluation
    mode.
    """

    def make(
        encoder: str = "conformer",
        decoder: str = "bitransformer",
        encoder_conf: dict[str, Any] | None = None,
        model_conf: dict[str, Any] | None = None,
        decoder_conf: dict[str, Any] | None = None,
        defaults: dict[str, Any] = SMALL,
    ) -> ASRModel:
        torch.manual_seed(0)
        values = {
            "encoder": encoder,
            "encoder_conf": {**defaults, **(encoder_conf or {})},
            "decoder": decoder,
            "decoder_conf": {
                "attention_heads": 2,
                "linear_units": 32,
                "num_blocks": 2,
                **(decoder_conf or {}),
            },
            "model_conf": {
                "ctc_weight": 0.3,
                "reverse_weight": 0.3,
                "lsm_weight": 0.1,
                **(model_conf or {}),
            },
            "tokenizer_conf": {"special_tokens": {"<sos>": VOCAB - 1, "<eos>": VOCAB - 1}},
            "input_dim": 40,
            "output_dim": VOCAB,
        }
        return build_model(parse_config(values, "test")).eval()

    return make


@pytest.fixture
def make_encoder_model(make_model: Callable[..., ASRModel]) -> Callable[..., ASRModel]:
    """make_encoder_model(encoder, encoder_conf) -> untrained model; only width, heads and blocks
    have test values.
    """

    def make(encoder: str, encoder_conf: dict[str, Any]) -> ASRModel:
        blocks = {} if encoder == "squeezeformer" else {"num_blocks": 2}
        sizes = (
            {} if encoder == "zipformer" else {"output_size": 16, "attention_heads": 2, **blocks}
        )
        conf = {**sizes, **encoder_conf}
        return make_model(encoder, "transformer", conf, {"reverse_weight": 0.0}, defaults={})

    return make


@pytest.fixture
def causal_conf() -> dict[str, Any]:
    """Keys of encoder_conf of a conformer that can stream."""
    return dict(CAUSAL)
