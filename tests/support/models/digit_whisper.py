"""The config and the vocabulary of a tiny Whisper that says digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.data.digits import WORDS
from tests.support.models.vocabularies import write_tiktoken


def write_vocabulary(folder: Path) -> None:
    """Write tiny.tiktoken, whose words are digits, at the beginning of a text and within it."""
    write_tiktoken(folder / "tiny.tiktoken", [f" {word}" for word in WORDS] + list(WORDS))


def digit_whisper(num_blocks: int, **sections: Any) -> dict[str, Any]:
    """A config with layers of this number in encoder and decoder, and with further sections."""
    layers = {
        "attention_heads": 2,
        "linear_units": 64,
        "num_blocks": num_blocks,
        "dropout_rate": 0.0,
    }
    layers |= {"activation_type": "gelu", "key_bias": False}
    return {
        "model": "whisper",
        "encoder": "transformer",
        "encoder_conf": {
            **layers, "output_size": 32, "input_layer": "conv1d2", "pos_enc_layer_type": "abs_pos_whisper",
        },
        "decoder": "transformer",
        "decoder_conf": {
            **layers, "src_key_bias": False, "input_layer": "embed_learnable_pe", "tie_word_embedding": True,
        },
        "tokenizer": "whisper",
        "tokenizer_conf": {"is_multilingual": True, "num_languages": 99, "bpe_path": "tiny.tiktoken"},
        **sections,
    }  # fmt: skip
