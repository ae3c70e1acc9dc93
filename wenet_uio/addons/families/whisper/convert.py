"""Whisper in the layouts of OpenAI (a .pt file) and of Hugging Face (a folder)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wenet_uio.addons.families.whisper.tokenizer import installed_vocabulary, read_ranks
from wenet_uio.addons.families.whisper.tokens import (
    ENGLISH_TEXT_TOKENS,
    TEXT_TOKENS,
    special_tokens,
)
from wenet_uio.models.converted import (
    Converted,
    check_state_dict,
    read_checkpoint,
    read_folder_weights,
    read_json,
    rename_weights,
)
from wenet_uio.models.embedding import LEARNED_POSITIONS, WHISPER_TABLE_LENGTH

DIMS = (
    *("n_mels", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_vocab", "n_text_ctx", "n_text_state", "n_text_head", "n_text_layer"),
)
"""Size fields of an OpenAI checkpoint."""
PARTS = ("dims", "model_state_dict")
"""Keys of an OpenAI checkpoint."""
HEAD = 1 << 20
"""Bytes at the beginning of an OpenAI checkpoint that have all its names; the tensors follow."""
CONFIG_FILE = "config.json"
VOCABULARIES = ("vocab.json", "multilingual.tiktoken", "gpt2.tiktoken")
"""Names of vocabularies that are looked for beside the weights."""
ENGLISH_VOCAB_SIZE = 51864
"""Size of the vocabulary of models that know English only."""
LANGUAGES_BY_VOCAB_SIZE = {ENGLISH_VOCAB_SIZE: 99, 51865: 99, 51866: 100}
"""{size of the vocabulary: number of its language tokens}."""


def _layer_names(theirs: str, ours: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return {their name: ours} of the modules of a numbered layer, whose number is `{}`."""
    return {f"{theirs}.{{}}.{name}": f"{ours}.{{}}.{our}" for name, our in names.items()}


def _attention_names(theirs: str, ours: str, projections: tuple[str, ...]) -> dict[str, str]:
    """Return {their name: ours} of the projections of an attention: query, key, value, output."""
    query, key, value, output = projections
    return {
        f"{theirs}.{query}": f"{ours}.linear_q",
        f"{theirs}.{key}": f"{ours}.linear_k",
        f"{theirs}.{value}": f"{ours}.linear_v",
        f"{theirs}.{output}": f"{ours}.linear_out",
    }


_OF_OPENAI = ("query", "key", "value", "out")
_OPENAI_FEED_FORWARD = {
    "mlp.0": "feed_forward.w_1",
    "mlp.2": "feed_forward.w_2",
    "attn_ln": "norm1",
}
_OPENAI_SELF = _attention_names("attn", "self_attn", _OF_OPENAI) | _OPENAI_FEED_FORWARD
OPENAI = {
    "encoder.conv1": "encoder.embed.conv.0",
    "encoder.conv2": "encoder.embed.conv.2",
    "encoder.positional_embedding": "encoder.embed.pos_enc.pe",
    **_layer_names("encoder.blocks", "encoder.encoders", {**_OPENAI_SELF, "mlp_ln": "norm2"}),
    "encoder.ln_post": "encoder.after_norm",
    "decoder.token_embedding": "decoder.embed.0",
    "decoder.positional_embedding": "decoder.embed.1.pe",
    **_layer_names(
        "decoder.blocks",
        "decoder.decoders",
        {
            **_OPENAI_SELF,
            **_attention_names("cross_attn", "src_attn", _OF_OPENAI),
            "cross_attn_ln": "norm2",
            "mlp_ln": "norm3",
        },
    ),
    "decoder.ln": "decoder.after_norm",
}
"""{module or weight of OpenAI: ours}."""
_OF_HF = ("q_proj", "k_proj", "v_proj", "out_proj")
_HF_SELF = {
    **_attention_names("self_attn", "self_attn", _OF_HF),
    "self_attn_layer_norm": "norm1",
    "fc1": "feed_forward.w_1",
    "fc2": "feed_forward.w_2",
}
HUGGING_FACE = {
    "encoder.conv1": "encoder.embed.conv.0",
    "encoder.conv2": "encoder.embed.conv.2",
    "encoder.embed_positions.weight": "encoder.embed.pos_enc.pe",
    **_layer_names("encoder.layers", "encoder.encoders", {**_HF_SELF, "final_layer_norm": "norm2"}),
    "encoder.layer_norm": "encoder.after_norm",
    "decoder.embed_tokens": "decoder.embed.0",
    "decoder.embed_positions.weight": "decoder.embed.1.pe",
    **_layer_names(
        "decoder.layers",
        "decoder.decoders",
        {
            **_HF_SELF,
            **_attention_names("encoder_attn", "src_attn", _OF_HF),
            "encoder_attn_layer_norm": "norm2",
            "final_layer_norm": "norm3",
        },
    ),
    "decoder.layer_norm": "decoder.after_norm",
}
"""{module or weight of Hugging Face, without `model.`: ours}."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model, by OpenAI's names.

    Raises:
        ValueError: the model has sizes that ours cannot have.
    """

    n_mels: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    audio_hidden: int
    text_hidden: int

    def __post_init__(self) -> None:
        for name, size, expected in (
            ("positions of the encoder", self.n_audio_ctx, (WHISPER_TABLE_LENGTH,)),
            ("positions of the decoder", self.n_text_ctx, (LEARNED_POSITIONS,)),
            ("width of the decoder", self.n_text_state, (self.n_audio_state,)),
            ("size of the vocabulary", self.n_vocab, tuple(LANGUAGES_BY_VOCAB_SIZE)),
        ):
            if size not in expected:
                sizes = " or ".join(str(number) for number in expected)
                raise ValueError(f"{name} {size}: a Whisper has {sizes}")

    @property
    def is_multilingual(self) -> bool:
        """Whether the model knows other languages than English; its vocabulary tells."""
        return self.n_vocab != ENGLISH_VOCAB_SIZE

    def train_yaml(self, vocabulary: Path | None) -> dict[str, Any]:
        """Return the content of the train.yaml; `vocabulary` is a file of byte pairs."""
        text_tokens = TEXT_TOKENS if self.is_multilingual else ENGLISH_TEXT_TOKENS
        num_languages = LANGUAGES_BY_VOCAB_SIZE[self.n_vocab]
        ids = special_tokens(text_tokens, num_languages)
        shared_by_stacks = {
            "activation_type": "gelu",
            "key_bias": False,
            "dropout_rate": 0.0,
            "positional_dropout_rate": 0.0,
        }
        return {
            "input_dim": self.n_mels,
            "output_dim": self.n_vocab,
            "vocab_size": self.n_vocab,
            "model": "whisper",
            "model_conf": {"ctc_weight": 0.0},
            "encoder": "transformer",
            "encoder_conf": {
                **shared_by_stacks,
                "output_size": self.n_audio_state,
                "attention_heads": self.n_audio_head,
                "num_blocks": self.n_audio_layer,
                "linear_units": self.audio_hidden,
                "input_layer": "conv1d2",
                "pos_enc_layer_type": "abs_pos_whisper",
            },
            "decoder": "transformer",
            "decoder_conf": {
                **shared_by_stacks,
                "src_key_bias": False,
                "attention_heads": self.n_text_head,
                "num_blocks": self.n_text_layer,
                "linear_units": self.text_hidden,
                "input_layer": "embed_learnable_pe",
                "tie_word_embedding": True,
            },
            "ctc_conf": {"ctc_blank_id": ids["no_speech"]},
            "tokenizer": "whisper",
            "tokenizer_conf": {
                "is_multilingual": self.is_multilingual,
                "num_languages": num_languages,
                "special_tokens": ids,
                "bpe_path": None if vocabulary is None else str(vocabulary),
            },
            "dataset_conf": {
                "feats_type": "log_mel_spectrogram",
                "log_mel_spectrogram_conf": {"num_mel_bins": self.n_mels, "pad_or_trim": True},
                "filter_conf": {"min_length": 0, "max_length": 3000, "token_max_length": 440},
            },
        }


def is_openai(path: Path) -> bool:
    """Tell whether `path` is a file of OpenAI, by the names at its beginning."""
    if path.suffix != ".pt" or not path.is_file():
        return False

    with open(path, "rb") as file:
        head = file.read(HEAD)
    return all(name.encode() in head for name in PARTS)


def from_openai(path: Path, vocabulary: Path | None) -> Converted:
    """Convert a file of OpenAI: {dims: sizes, model_state_dict: weights}.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has another content.
    """
    content = read_checkpoint(path)
    if not isinstance(content, dict) or not content.keys() >= set(PARTS):
        raise ValueError(f"{path}: expected {' and '.join(PARTS)}, as a Whisper of OpenAI has them")

    dims, weights = content["dims"], content["model_state_dict"]
    if not isinstance(dims, dict):
        raise ValueError(f"{path}: dims: expected sizes by name, found {type(dims).__name__}")

    check_state_dict(path, weights)
    missing = [name for name in DIMS if not isinstance(dims.get(name), int)]
    if missing:
        raise ValueError(f"{path}: dims lacks {', '.join(missing)}")

    # OpenAI's feed-forward modules are four times as wide as the frames; no field says it.
    sizes = Sizes(
        **{name: dims[name] for name in DIMS},
        audio_hidden=4 * dims["n_audio_state"],
        text_hidden=4 * dims["n_text_state"],
    )
    layers = {"encoder.": sizes.n_audio_layer, "decoder.": sizes.n_text_layer}
    unused = ("alignment_heads", "decoder.mask")
    our_weights = rename_weights(weights, OPENAI, layers, unused)
    return _finish_conversion(sizes, our_weights, path.parent, vocabulary)


def is_hugging_face(path: Path) -> bool:
    """Tell whether `path` is the folder of a Whisper of Hugging Face."""
    file = path / CONFIG_FILE
    return file.is_file() and read_json(file).get("model_type") == "whisper"


def from_hugging_face(path: Path, vocabulary: Path | None) -> Converted:
    """Convert a folder of Hugging Face: config.json, and model.safetensors or pytorch_model.bin or
    their parts.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file has another content, or the model has parts that ours cannot have.
    """
    sizes = _read_sizes(path / CONFIG_FILE)
    weights: dict[str, torch.Tensor] = {}
    for name, weight in read_folder_weights(path).items():
        weights[name.removeprefix("model.")] = weight

    layers = {"encoder.": sizes.n_audio_layer, "decoder.": sizes.n_text_layer}
    unused = ("proj_out.weight",)  # the embedding of the decoder
    our_weights = rename_weights(weights, HUGGING_FACE, layers, unused)
    return _finish_conversion(sizes, our_weights, path, vocabulary)


def _read_sizes(path: Path) -> Sizes:
    """Read the sizes of a model from config.json.

    Raises:
        OSError: the file cannot be read.
        ValueError: a size is missing, or the model has parts that ours cannot have.
    """
    values = read_json(path)
    has_other_activation = values.get("activation_function", "gelu") != "gelu"
    if values.get("scale_embedding") or has_other_activation:
        raise ValueError(
            f"{path}: only Whisper with gelu and without scale_embedding can be converted"
        )

    our_names = {
        "num_mel_bins": ("n_mels",),
        "max_source_positions": ("n_audio_ctx",),
        "d_model": ("n_audio_state", "n_text_state"),
        "encoder_attention_heads": ("n_audio_head",),
        "encoder_layers": ("n_audio_layer",),
        "encoder_ffn_dim": ("audio_hidden",),
        "vocab_size": ("n_vocab",),
        "max_target_positions": ("n_text_ctx",),
        "decoder_attention_heads": ("n_text_head",),
        "decoder_layers": ("n_text_layer",),
        "decoder_ffn_dim": ("text_hidden",),
    }
    missing = [name for name in our_names if not isinstance(values.get(name), int)]
    if missing:
        raise ValueError(f"{path}: no number under {', '.join(missing)}")

    sizes: dict[str, int] = {}
    for name, fields in our_names.items():
        for field in fields:
            sizes[field] = values[name]

    return Sizes(**sizes)


def _finish_conversion(
    sizes: Sizes, weights: dict[str, torch.Tensor], folder: Path, vocabulary: Path | None
) -> Converted:
    """Return the converted model: its weights, with those that Whisper's file does not have, its
    train.yaml, and notes for the user.

    Args:
        sizes: of the model.
        weights: by our names.
        folder: of the model; its vocabulary is used if `vocabulary` is None.
        vocabulary: file of byte pairs.

    Raises:
        ValueError: the vocabulary is that of the other kind of Whisper.
    """
    # Our tables of positions have a batch axis: (1, positions, D).
    for name in ("encoder.embed.pos_enc.pe", "decoder.embed.1.pe"):
        weights[name] = weights[name].unsqueeze(0)

    # Whisper's output layer is its embedding, without a bias.
    embedding = weights["decoder.embed.0.weight"]  # (V, D)
    weights["decoder.output_layer.weight"] = embedding
    weights["decoder.output_layer.bias"] = torch.zeros(len(embedding))

    notes = [
        "CTC is not trained: decode with --mode attention, or fine-tune with ctc_weight above 0"
    ]
    if vocabulary is None:
        files = (folder / name for name in VOCABULARIES)
        vocabulary = next((file for file in files if file.is_file()), None)
    if vocabulary is not None:
        _check_vocabulary(vocabulary, multilingual=sizes.is_multilingual)
    else:
        try:
            vocabulary = Path(installed_vocabulary(multilingual=sizes.is_multilingual))
        except ValueError as error:
            notes.append(f"no vocabulary: {error}")

    return Converted(sizes.train_yaml(vocabulary), weights, ("ctc.",), tuple(notes))


def _check_vocabulary(path: Path, *, multilingual: bool) -> None:
    """Raise a ValueError if the file is no vocabulary of byte pairs, or that of the other kind of
    Whisper.
    """
    kinds_by_size = {TEXT_TOKENS: "multilingual", ENGLISH_TEXT_TOKENS: "English only"}
    expected_size = TEXT_TOKENS if multilingual else ENGLISH_TEXT_TOKENS
    size = len(read_ranks(path))
    if size in kinds_by_size and size != expected_size:
        raise ValueError(
            f"{path}: the vocabulary of a model that is {kinds_by_size[size]}; this model is "
            f"{kinds_by_size[expected_size]}"
        )
