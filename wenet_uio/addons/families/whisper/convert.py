"""Whisper in the layouts of OpenAI (a .pt file) and of Hugging Face (a folder)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wenet_uio.addons.families.whisper.adapter import merge_adapter, read_base
from wenet_uio.addons.families.whisper.folder_tokens import (
    JSON_VOCABULARIES,
    ModelTokens,
    read_folder_tokens,
)
from wenet_uio.addons.families.whisper.tokens import (
    ENGLISH_TEXT_TOKENS,
    TEXT_TOKENS,
    special_tokens,
)
from wenet_uio.addons.families.whisper.vocabulary_file import (
    installed_vocabulary,
    read_vocabulary,
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
OUTPUT_LAYER, EMBEDDING = "proj_out.weight", "decoder.embed_tokens.weight"
"""Weights of Hugging Face that are one weight, unless tie_word_embeddings is false."""
VOCABULARIES = (*JSON_VOCABULARIES, "multilingual.tiktoken", "gpt2.tiktoken")
"""Names of vocabularies that are looked for beside the weights."""
TOKENS_BY_SIZE = {
    51864: ModelTokens(is_multilingual=False, num_languages=99, count=51864),
    51865: ModelTokens(is_multilingual=True, num_languages=99, count=51865),
    51866: ModelTokens(is_multilingual=True, num_languages=100, count=51866),
}
"""{size of the vocabulary: tokens of the model of OpenAI that has it}."""


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
        ):
            if size not in expected:
                sizes = " or ".join(str(number) for number in expected)
                raise ValueError(f"{name} {size}: a Whisper has {sizes}")

    def train_yaml(
        self, tokens: ModelTokens, vocabulary: str | None, *, tied: bool
    ) -> dict[str, Any]:
        """Return the content of the train.yaml.

        Args:
            tokens: of the model.
            vocabulary: file of byte pairs.
            tied: the output layer is the embedding.
        """
        text_tokens = TEXT_TOKENS if tokens.is_multilingual else ENGLISH_TEXT_TOKENS
        ids = special_tokens(text_tokens, tokens.num_languages)
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
                "tie_word_embedding": tied,
            },
            "ctc_conf": {"ctc_blank_id": ids["no_speech"]},
            "tokenizer": "whisper",
            "tokenizer_conf": {
                "is_multilingual": tokens.is_multilingual,
                "num_languages": tokens.num_languages,
                "special_tokens": ids,
                "bpe_path": vocabulary,
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
    tokens = _tokens_by_size(sizes.n_vocab)
    return _finish_conversion(sizes, tokens, our_weights, path.parent, vocabulary)


def _tokens_by_size(size: int) -> ModelTokens:
    """Return the tokens of a model whose files do not name them.

    Raises:
        ValueError: no model of OpenAI has this size of the vocabulary.
    """
    if size not in TOKENS_BY_SIZE:
        sizes = " or ".join(map(str, TOKENS_BY_SIZE))
        raise ValueError(f"size of the vocabulary {size}: a Whisper of OpenAI has {sizes}")
    return TOKENS_BY_SIZE[size]


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
    return _convert_folder(path, sizes, read_folder_weights(path), vocabulary)


def from_adapter(path: Path, vocabulary: Path | None) -> Converted:
    """Convert the folder of an adapter of PEFT, merged with its base model.

    Raises:
        OSError: a file cannot be read.
        ValueError: the base model is not there, or the adapter is of another kind or model.
    """
    base = read_base(path)
    sizes = _read_sizes(base / CONFIG_FILE)
    return _convert_folder(base, sizes, merge_adapter(path, read_folder_weights(base)), vocabulary)


def _convert_folder(
    path: Path, sizes: Sizes, their_weights: Mapping[str, torch.Tensor], vocabulary: Path | None
) -> Converted:
    """Convert a model that a folder of Hugging Face describes.

    Args:
        path: the folder.
        sizes: of the model.
        their_weights: by the names of Hugging Face.
        vocabulary: file of byte pairs; None: that of the folder.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file has another content, or the model has parts that ours cannot have.
    """
    tokens = read_folder_tokens(path) or _tokens_by_size(sizes.n_vocab)
    if sizes.n_vocab < tokens.count:
        raise ValueError(
            f"{path}: {CONFIG_FILE} has vocab_size {sizes.n_vocab}, the other files name "
            f"{tokens.count} tokens"
        )

    weights = {name.removeprefix("model."): weight for name, weight in their_weights.items()}
    output_layer = weights.pop(OUTPUT_LAYER, None)
    if read_json(path / CONFIG_FILE).get("tie_word_embeddings", True):
        embedding = weights.get(EMBEDDING)
        if output_layer is not None and not _are_equal(output_layer, embedding):
            raise ValueError(
                f"{path}: {CONFIG_FILE} has tie_word_embeddings true, but {OUTPUT_LAYER} is not "
                f"{EMBEDDING}"
            )
        output_layer = None
    elif output_layer is None:
        raise ValueError(f"{path}: tie_word_embeddings is false, and {OUTPUT_LAYER} is missing")

    layers = {"encoder.": sizes.n_audio_layer, "decoder.": sizes.n_text_layer}
    our_weights = rename_weights(weights, HUGGING_FACE, layers, ())
    if output_layer is not None:
        our_weights["decoder.output_layer.weight"] = output_layer.float()
    return _finish_conversion(sizes, tokens, our_weights, path, vocabulary)


def _are_equal(weight: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and torch.equal(weight, other)


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
    sizes: Sizes,
    tokens: ModelTokens,
    weights: dict[str, torch.Tensor],
    folder: Path,
    vocabulary: Path | None,
) -> Converted:
    """Return the converted model: its weights, with those that Whisper's file does not have, its
    train.yaml, and notes for the user.

    Args:
        sizes: of the model.
        tokens: of the model.
        weights: by our names; without an output layer it is the embedding.
        folder: of the model; its vocabulary is used if `vocabulary` is None.
        vocabulary: file of byte pairs.

    Raises:
        ValueError: the vocabulary is that of the other kind of Whisper.
    """
    # Our tables of positions have a batch axis: (1, positions, D).
    for name in ("encoder.embed.pos_enc.pe", "decoder.embed.1.pe"):
        weights[name] = weights[name].unsqueeze(0)

    # Whisper's output layer has no bias.
    embedding = weights["decoder.embed.0.weight"]  # (V, D)
    tied = "decoder.output_layer.weight" not in weights
    weights.setdefault("decoder.output_layer.weight", embedding)
    weights["decoder.output_layer.bias"] = torch.zeros(len(embedding))

    notes = [
        "CTC is not trained: decode with --mode attention, or fine-tune with ctc_weight above 0"
    ]
    files: dict[str, str] = {}
    if vocabulary is None and tokens.tokenizer_json is not None:
        path: str | None = "tokenizer.json"
        files["tokenizer.json"] = tokens.tokenizer_json
    else:
        path, found = _find_vocabulary(folder, vocabulary, multilingual=tokens.is_multilingual)
        notes += found

    values = sizes.train_yaml(tokens, path, tied=tied)
    return Converted(values, weights, ("ctc.",), tuple(notes), files)


def _find_vocabulary(
    folder: Path, vocabulary: Path | None, *, multilingual: bool
) -> tuple[str | None, list[str]]:
    """Return the file of byte pairs: the given one, one of the folder, or that of the installed package;
    and notes if there is none.

    Raises:
        ValueError: the file is the vocabulary of the other kind of Whisper.
    """
    if vocabulary is None:
        files = (folder / name for name in VOCABULARIES)
        vocabulary = next((file for file in files if file.is_file()), None)
    if vocabulary is not None:
        _check_vocabulary(vocabulary, multilingual=multilingual)
        return str(vocabulary), []

    try:
        return installed_vocabulary(multilingual=multilingual), []
    except ValueError as error:
        return None, [f"no vocabulary: {error}"]


def _check_vocabulary(path: Path, *, multilingual: bool) -> None:
    """Raise a ValueError if the file is no vocabulary of byte pairs, or that of the other kind of
    Whisper.
    """
    kinds_by_size = {TEXT_TOKENS: "multilingual", ENGLISH_TEXT_TOKENS: "English only"}
    expected_size = TEXT_TOKENS if multilingual else ENGLISH_TEXT_TOKENS
    size = len(read_vocabulary(path).ranks)
    if size in kinds_by_size and size != expected_size:
        raise ValueError(
            f"{path}: the vocabulary of a model that is {kinds_by_size[size]}; this model is "
            f"{kinds_by_size[expected_size]}"
        )
