"""The yaml of a paraformer of a few thousand weights."""

from __future__ import annotations

from typing import Any


def tiny_paraformer(**changes: Any) -> dict[str, Any]:
    """Keys of the yaml; `changes` replace whole sections."""
    return {
        "model": "paraformer",
        "encoder": "sanm_encoder",
        "encoder_conf": {
            "output_size": 16,
            "attention_heads": 2,
            "linear_units": 16,
            "num_blocks": 2,
        },
        "decoder": "sanm_decoder",
        "decoder_conf": {
            "attention_heads": 2,
            "linear_units": 16,
            "num_blocks": 2,
            "att_layer_num": 2,
        },
        "tokenizer_conf": {"special_tokens": {"<sos>": 1, "<eos>": 2}},
        "output_dim": 9,
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 8}},
        **changes,
    }
