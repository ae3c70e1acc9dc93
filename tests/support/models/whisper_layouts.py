"""A random Whisper of the package transformers, in the layouts of Hugging Face and of OpenAI."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import torch

from wenet_uio.text.byte_tokens import byte_of_char

SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "num_mel_bins": 80}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 4}
TO_OPENAI = (
    *(
        ("model.", ""),
        ("layers", "blocks"),
        ("fc1", "mlp.0"),
        ("fc2", "mlp.2"),
        ("final_layer_norm", "mlp_ln"),
    ),
    *(("self_attn_layer_norm", "attn_ln"), ("encoder_attn_layer_norm", "cross_attn_ln")),
    *(("self_attn", "attn"), ("encoder_attn", "cross_attn")),
    *(("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out")),
    *(("decoder.layer_norm", "decoder.ln"), ("encoder.layer_norm", "encoder.ln_post")),
    *(("embed_tokens", "token_embedding"), ("embed_positions.weight", "positional_embedding")),
)
"""Names of Hugging Face and of OpenAI, as the script `convert_openai_to_hf.py` of transformers
pairs them."""


def random_whisper(vocab_size: int = 51865, **sizes: int) -> Any:
    """A WhisperForConditionalGeneration in which no weight has a special value.

    Args:
        sizes: fields of its config that differ from SIZES.
    """
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=vocab_size, encoder_ffn_dim=64, decoder_ffn_dim=64, **{**SIZES, **HEADS, **sizes}
    )
    model = WhisperForConditionalGeneration(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.15)
    return model


def save_openai(model: Any, path: Path) -> Path:
    """Write the model as OpenAI does."""
    weights = {}
    for name, weight in model.state_dict().items():
        if name != "proj_out.weight":
            for theirs, ours in TO_OPENAI:
                name = name.replace(theirs, ours)
            weights[name] = weight
    config = model.config
    dims = {
        "n_mels": config.num_mel_bins,
        "n_audio_ctx": config.max_source_positions,
        "n_audio_state": config.d_model,
        "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers,
        "n_vocab": config.vocab_size,
        "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model,
        "n_text_head": config.decoder_attention_heads,
        "n_text_layer": config.decoder_layers,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"dims": dims, "model_state_dict": weights}, path)
    return path


def save_config_json(model: Any, folder: Path, **changes: Any) -> None:
    """Write config.json with changes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps({**model.config.to_dict(), **changes}), encoding="utf-8"
    )


def write_full_vocabulary(path: Path) -> Path:
    """A vocabulary of 50257 tokens: all bytes, then made-up words."""
    tokens = [bytes([byte]) for byte in range(256)] + [
        f" w{number}".encode() for number in range(50257 - 256)
    ]
    lines = (f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def save_tokenizer(
    folder: Path, text_tokens: int, num_languages: int, added: dict[str, bool]
) -> Any:
    """Write tokenizer.json of a Whisper: byte pairs, special tokens, and tokens that somebody has added.

    Args:
        text_tokens: 50257, or 50256 of a model that knows English only.
        added: {token: whether it is special}.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from wenet_uio.addons.families.whisper.tokenizer import special_token_names

    # The longer tokens stand for words, and no text is cut into them: there are no merges.
    chars = list(byte_of_char())
    names = chars + [f"{number:09d}" for number in range(text_tokens - len(chars))]
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special_token_names(num_languages))
    for name, is_special in added.items():
        tokenizer.add_tokens([AddedToken(name, special=is_special, normalized=False)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def save_slow_tokenizer(folder: Path) -> None:
    """Replace tokenizer.json by vocab.json and added_tokens.json, as older packages have saved it."""
    values = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {entry["content"]: entry["id"] for entry in values["added_tokens"]}
    eot = {"<|endoftext|>": ids.pop("<|endoftext|>")}
    (folder / "vocab.json").write_text(json.dumps(values["model"]["vocab"] | eot), encoding="utf-8")
    (folder / "added_tokens.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "tokenizer.json").unlink()


def generation_ids(text_tokens: int, num_languages: int) -> dict[str, Any]:
    """What a generation_config.json says about tokens."""
    from wenet_uio.addons.families.whisper.tokenizer import special_token_names

    names = special_token_names(num_languages)
    ids = {name: text_tokens + place for place, name in enumerate(names)}
    conf = {
        "eos_token_id": text_tokens,
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "is_multilingual": text_tokens == 50257,
    }
    if text_tokens == 50257:
        conf["lang_to_id"] = {name: ids[name] for name in names[2 : 2 + num_languages]}
        conf["task_to_id"] = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
    return conf
