"""Export of a Whisper for sherpa-onnx: encoder.onnx and decoder.onnx with its metadata, tokens.txt,
and their check.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from wenet_uio.addons.families.whisper import WHISPER
from wenet_uio.addons.families.whisper.model import Whisper
from wenet_uio.addons.families.whisper.tokenizer import TOKENS, WhisperSplitter
from wenet_uio.addons.runtimes.onnx_files import open_session
from wenet_uio.addons.runtimes.onnx_graphs import Graph
from wenet_uio.addons.runtimes.onnx_modules import traceable
from wenet_uio.addons.runtimes.sherpa import SherpaOnly
from wenet_uio.config.dataset import DatasetConf, LogMelSpectrogramConf
from wenet_uio.export.check import Agreement, Difference, compare_examples
from wenet_uio.export.command import Trained
from wenet_uio.models.embedding import (
    LearnedPositionalEncoding,
    WhisperPositionalEncoding,
    whisper_sinusoids,
)
from wenet_uio.models.masks import additive
from wenet_uio.search import decode
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.byte_tokens import bytes_of, name_of
from wenet_uio.text.labels import Tokenizer

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FILES = ("whisper-encoder.onnx", "whisper-decoder.onnx")
TAIL = 1000
"""Frames of zeros that sherpa-onnx appends to the features, unless it is told another number."""


def sherpa(trained: Trained) -> SherpaOnly:
    """Return what to export for sherpa-onnx; see ExchangeRules.sherpa.

    Raises:
        ValueError: sherpa-onnx does not support the decoder or the tokenizer.
    """
    model, config, tokenizer = trained.model, trained.config, trained.tokenizer
    limit = trained.arguments.num_check
    assert isinstance(model, Whisper), "the family builds no other model"
    return SherpaOnly(
        whisper_graphs(model, tokenizer, config.feature_dim),
        whisper_tokens_file(tokenizer, model.eos),
        whisper_feature_differences(config.dataset_conf),
        lambda files: compare_whisper(files, model, trained.examples(), limit),
        WHISPER.exchange.wenet_obstacle,
        "a whisper does not stream",
    )


class CrossKeys(nn.Module):
    """Features -> keys and values that each layer of the decoder attends to."""

    def __init__(self, model: Whisper) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute keys and values (L, N, T', D) of features mel (N, F, T) of equal lengths."""
        lengths = torch.full((mel.size(0),), mel.size(2), dtype=torch.int64)
        memory, _ = self.encoder(mel.transpose(1, 2), lengths)
        attentions = [layer.src_attn for layer in self.decoder._layers()]
        keys = torch.stack([attention.linear_k(memory) for attention in attentions])

        return keys, torch.stack([attention.linear_v(memory) for attention in attentions])


class CachedDecoder(nn.Module):
    """Some tokens after those before -> scores of the next tokens; the caches have room for all
    positions.
    """

    def __init__(self, model: Whisper) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(
        self,
        tokens: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        cross_keys: torch.Tensor,
        cross_values: torch.Tensor,
        offset: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute logits (N, U, V) of tokens (N, U) from position `offset` (1,), and the caches.

        Args:
            keys: (L, N, positions, D) of the tokens before; the rest has any values.
            values: the same.
            cross_keys: (L, N, T', D) of CrossKeys.
            cross_values: the same.
        """
        positions = self.decoder.embed[1]
        assert isinstance(positions, LearnedPositionalEncoding)
        places = offset + torch.arange(tokens.size(1))
        x = self.decoder.embed[0](tokens) + positions.pe[0][places]

        # Each token sees the positions up to its own; `rows` is where the caches take its keys.
        room = torch.arange(keys.size(2))
        bias = additive((room.unsqueeze(0) <= places.unsqueeze(1)).unsqueeze(0), x.dtype)
        no_bias = torch.zeros(1, 1, 1, 1)
        rows = places.view(1, -1, 1).expand(x.size(0), -1, x.size(2))
        new_keys, new_values = [], []

        for number, layer in enumerate(self.decoder._layers()):
            attention, source = layer.self_attn, layer.src_attn
            normed = layer.norm1(x)

            new_keys.append(keys[number].scatter(1, rows, attention.linear_k(normed)))
            new_values.append(values[number].scatter(1, rows, attention.linear_v(normed)))
            key, value = attention.split_heads(new_keys[-1]), attention.split_heads(new_values[-1])
            x = x + attention.attend_memory(normed, key, value, bias)

            key = source.split_heads(cross_keys[number])
            value = source.split_heads(cross_values[number])
            x = x + source.attend_memory(layer.norm2(x), key, value, no_bias)
            x = x + layer.feed_forward(layer.norm3(x))

        return self.decoder._project_to_logits(x), torch.stack(new_keys), torch.stack(new_values)


def whisper_graphs(model: Whisper, tokenizer: Tokenizer, feature_dim: int) -> dict[str, Graph]:
    """Return the graphs by file name.

    Raises:
        ValueError: sherpa-onnx does not support the decoder or the tokenizer.
    """
    decoder, encoder = model.decoder, model.encoder
    if (
        decoder.max_tokens is None
        or not decoder.normalize_before
        or decoder.key_heads != _decoder_heads(model)
    ):
        raise ValueError(
            "sherpa-onnx needs a decoder with embed_learnable_pe and normalize_before, without "
            "n_kv_head"
        )

    metadata = _graph_metadata(model, tokenizer, feature_dim)
    model = _traceable_whisper(model)
    layers, width = len(model.decoder.decoders), encoder.traits.output_size

    # Examples for tracing: any numbers of frames and tokens do, because these axes are dynamic.
    mel, tokens = torch.randn(1, feature_dim, 60), torch.randint(10, (1, 3))
    caches = {name: torch.zeros(layers, 1, decoder.max_tokens, width) for name in ("k", "v")}
    cross = {name: torch.randn(layers, 1, 9, width) for name in ("k", "v")}
    batch, frames = {1: "n_audio"}, {1: "n_audio", 2: "T"}
    names = {"k": "n_layer_cross_k", "v": "n_layer_cross_v"}

    return {
        FILES[0]: Graph(
            CrossKeys(model),
            {"mel": mel},
            tuple(names.values()),
            {"mel": {0: "n_audio", 2: "T"}} | dict.fromkeys(names.values(), frames),
            metadata,
        ),
        FILES[1]: Graph(
            CachedDecoder(model),
            {
                "tokens": tokens,
                **{f"in_n_layer_self_{name}_cache": cache for name, cache in caches.items()},
                **{names[name]: tensor for name, tensor in cross.items()},
                "offset": torch.tensor([2]),
            },
            ("logits", "out_n_layer_self_k_cache", "out_n_layer_self_v_cache"),
            {"tokens": {0: "n_audio", 1: "n_tokens"}, "logits": {0: "n_audio", 1: "n_tokens"}}
            | dict.fromkeys(names.values(), frames)
            | {
                f"{way}_n_layer_self_{name}_cache": batch
                for way in ("in", "out")
                for name in caches
            },
            metadata,
        ),
    }


class _TracedPositions(WhisperPositionalEncoding):
    """The positions of a model without the `if` that a trace cannot keep."""

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return encodings (1, size, dim) of the first positions; `offset` is 0."""
        computed = whisper_sinusoids(offset, size, self.dim, like.device)
        return torch.cat((self.pe[:, :size], computed[:, self.pe.size(1) :]), dim=1)


def _traceable_whisper(model: Whisper) -> Whisper:
    """Return a copy of the model that a trace can follow."""
    copy = traceable(model)
    assert isinstance(copy, Whisper)
    positions = model.encoder.embed.pos_enc
    if isinstance(positions, WhisperPositionalEncoding):
        traced = _TracedPositions(positions.dim, dropout_rate=0.0)
        traced.pe = positions.pe
        copy.encoder.embed.pos_enc = traced.eval()
    return copy


def _decoder_heads(model: Whisper) -> int:
    """Return the heads of the self-attention of the decoder."""
    return next(model.decoder._layers()).self_attn.heads


def _graph_metadata(model: Whisper, tokenizer: Tokenizer, feature_dim: int) -> dict[str, object]:
    """Return what sherpa-onnx reads from both files."""
    if not isinstance(tokenizer.splitter, WhisperSplitter):
        raise ValueError(
            "sherpa-onnx reads a whisper with tokenizer whisper only, whose tokens are byte pairs"
        )

    tokens, encoder = model.tokens, model.encoder
    sizes = {
        "n_mels": feature_dim,
        "n_audio_ctx": 1500,  # encoder frames of 30 s
        "n_audio_state": encoder.traits.output_size,
        "n_audio_head": encoder.traits.heads,
        "n_audio_layer": encoder.traits.layers,
        "n_vocab": model.vocab_size,
        "n_text_ctx": model.decoder.max_tokens,
        "n_text_state": encoder.traits.output_size,
        "n_text_head": _decoder_heads(model),
        "n_text_layer": len(model.decoder.decoders),
    }
    named = {name: tokens.ids[name] for name in TOKENS if name != "timestamp_begin"}
    return {
        "model_type": "whisper-wenet_uio",
        "version": "1",
        "maintainer": "wenet_uio",
        **sizes,
        **named,
        "sot_sequence": _comma_list(tokens.prompt("en")[:-1]),
        "sot_index": 0,
        "sot_lm": tokens.ids["sot_prev"] - 1,  # <|startoflm|>, before <|startofprev|>
        "all_language_tokens": _comma_list(tokens.language_ids),
        "all_language_codes": _comma_list(tokens.languages),
        "blank_id": tokenizer.symbols[name_of(b" ")],
        "is_multilingual": int(tokens.multilingual),
        "non_speech_tokens": "",
    }


def _comma_list(values: Iterable[object]) -> str:
    """Return the values as sherpa-onnx reads lists, separated by commas."""
    return ",".join(map(str, values))


def whisper_tokens_file(tokenizer: Tokenizer, eot: int) -> str:
    """Return the text of tokens.txt: the bytes of each text token as base64, and its id."""
    pairs = sorted((unit, symbol) for symbol, unit in tokenizer.symbols.items() if unit < eot)
    return "".join(
        f"{base64.b64encode(bytes_of(symbol)).decode()} {unit}\n" for unit, symbol in pairs
    )


def whisper_feature_differences(conf: DatasetConf) -> list[str]:
    """Return the feature settings of the model that differ from sherpa-onnx, as `key: value, value
    in sherpa-onnx`.
    """
    if conf.feats_type != "log_mel_spectrogram":
        return [f"feats_type: {conf.feats_type}, log_mel_spectrogram in sherpa-onnx"]

    ours, theirs = conf.log_mel_spectrogram_conf, LogMelSpectrogramConf()
    differences = [
        f"log_mel_spectrogram_conf.{key}: {getattr(ours, key)}, {getattr(theirs, key)} in "
        "sherpa-onnx"
        for key in ("n_fft", "hop_length")
        if getattr(ours, key) != getattr(theirs, key)
    ]
    rate = conf.resample_conf.resample_rate
    if rate != 16000:
        differences.append(f"resample_conf.resample_rate: {rate}, 16000 in sherpa-onnx")

    return differences


@torch.inference_mode()
def compare_whisper(
    contents: Mapping[str, bytes],
    model: Whisper,
    examples: Iterable[tuple[str, torch.Tensor]],
    limit: int,
) -> Agreement:
    """Compare the scores of exported and trained model for the texts that the trained model
    recognises.

    As sherpa-onnx does, features end with TAIL frames of zeros, and the prompt comes before the
    text.

    Raises:
        ValueError: there is no example.
    """
    encoder, decoder = (open_session(contents[name], name) for name in FILES)

    def compare_one(key: str, feats: torch.Tensor) -> tuple[float, int, Difference | None]:
        """Return the largest difference of log-probabilities, the number of tokens, and both texts
        if they differ.
        """
        expected, exported = _both_scores(
            model, encoder, decoder, nn.functional.pad(feats, (0, 0, 0, TAIL))
        )
        difference = (exported - expected).abs().max().item()
        if torch.equal(expected.argmax(1), exported.argmax(1)):
            return difference, len(expected), None

        text, exported_text = (_best_text(scores, model.eos) for scores in (expected, exported))
        return difference, len(expected), Difference(key, "attention", text, exported_text)

    return compare_examples(examples, limit, compare_one)


def _both_scores(
    model: Whisper, encoder: InferenceSession, decoder: InferenceSession, feats: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities (U, V) of the text that the trained model recognises, by the trained
    and the exported model.
    """
    lengths = torch.tensor([feats.size(1)])
    results = decode(model, feats, lengths, ["attention"], DecodeOptions(beam_size=1))
    best = results["attention"][0][0]
    prompt = model.tokens.prompt(best.language or "en")
    tokens = torch.tensor([[*prompt, *best.tokens]])[:, : model.decoder.max_tokens]

    encoder_out, _ = model.encode(feats, lengths)
    expected, _ = model.forward_attention_decoder(
        tokens, torch.tensor([tokens.size(1)]), encoder_out
    )

    cross = encoder.run(None, {"mel": feats.transpose(1, 2).numpy()})
    exported = _token_scores(decoder, tokens, len(prompt), cross).log_softmax(2)

    first = len(prompt) - 1  # the last token of the prompt predicts the first of the text
    return expected[0, first:], exported[0, first:]


def _best_text(scores: torch.Tensor, eot: int) -> tuple[int, ...]:
    """Return the best tokens of scores (U, V) that are text."""
    return tuple(token for token in scores.argmax(1).tolist() if token < eot)


def _token_scores(
    decoder: InferenceSession, tokens: torch.Tensor, prompt: int, cross: Sequence[Any]
) -> torch.Tensor:
    """Return logits (1, U, V): the prompt in one call, then token by token."""
    known = {tensor.name: tensor.shape for tensor in decoder.get_inputs()}
    layers, _, positions, width = known["in_n_layer_self_k_cache"]
    caches = [torch.zeros(layers, 1, positions, width).numpy() for _ in range(2)]
    scores, start = [], 0

    for end in range(prompt, tokens.size(1) + 1):
        logits, *caches = decoder.run(
            None,
            {
                "tokens": tokens[:, start:end].numpy(),
                "in_n_layer_self_k_cache": caches[0],
                "in_n_layer_self_v_cache": caches[1],
                "n_layer_cross_k": cross[0],
                "n_layer_cross_v": cross[1],
                "offset": torch.tensor([start]).numpy(),
            },
        )
        scores.append(torch.from_numpy(logits))
        start = end

    return torch.cat(scores, dim=1)
