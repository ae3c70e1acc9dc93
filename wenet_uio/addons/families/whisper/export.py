"""Export of a Whisper for sherpa-onnx: encoder.onnx and decoder.onnx with its metadata, tokens.txt,
and their check.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
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

ENCODER_FILE, DECODER_FILE = "whisper-encoder.onnx", "whisper-decoder.onnx"
TAIL = 1000
"""Frames of zeros that sherpa-onnx appends to the features, unless it is told another number."""


def sherpa(trained: Trained) -> SherpaOnly:
    """Return the files of a trained whisper for sherpa-onnx, and how to check them.

    Raises:
        ValueError: sherpa-onnx does not support the decoder or the tokenizer.
    """
    model, config, tokenizer = trained.model, trained.config, trained.tokenizer
    assert isinstance(model, Whisper), "the family builds no other model"

    def compare_files(files: Mapping[str, bytes]) -> Agreement:
        return compare_whisper(files, model, trained.examples(), trained.arguments.num_check)

    return SherpaOnly(
        whisper_graphs(model, tokenizer, config.feature_dim),
        whisper_tokens_file(tokenizer, model.eos),
        whisper_feature_differences(config.dataset_conf),
        compare_files,
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
        memory, _ = self.encoder(mel.transpose(1, 2), lengths)  # (N, T', D)
        attentions = [layer.src_attn for layer in self.decoder._layers()]
        keys = torch.stack([attention.linear_k(memory) for attention in attentions])
        values = torch.stack([attention.linear_v(memory) for attention in attentions])
        return keys, values


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
        """Compute the scores of the next tokens, and the caches with the keys and values of these
        tokens.

        Args:
            tokens: (N, U).
            keys: cache (L, N, positions, D) of L layers, with the keys of the tokens before; the
                rest has any values.
            values: cache of the values, the same.
            cross_keys: (L, N, T', D) of the encoder frames.
            cross_values: the same.
            offset: (1,) position of the first token.

        Returns:
            Logits (N, U, V), and both caches.
        """
        encoding = self.decoder.embed[1]
        assert isinstance(encoding, LearnedPositionalEncoding)
        positions = offset + torch.arange(tokens.size(1))  # (U,)
        x = self.decoder.embed[0](tokens) + encoding.pe[0][positions]  # (N, U, D)

        # Each token sees the positions up to its own.
        all_positions = torch.arange(keys.size(2))
        is_seen = all_positions.unsqueeze(0) <= positions.unsqueeze(1)  # (U, positions)
        bias = additive(is_seen.unsqueeze(0), x.dtype)
        no_bias = torch.zeros(1, 1, 1, 1)
        # Where the caches take the keys and values of the tokens: (N, U, D).
        cache_rows = positions.view(1, -1, 1).expand(x.size(0), -1, x.size(2))

        new_keys, new_values = [], []
        for number, layer in enumerate(self.decoder._layers()):
            attention = layer.self_attn
            normed = layer.norm1(x)
            layer_keys = keys[number].scatter(1, cache_rows, attention.linear_k(normed))
            layer_values = values[number].scatter(1, cache_rows, attention.linear_v(normed))
            new_keys.append(layer_keys)
            new_values.append(layer_values)
            key = attention.split_heads(layer_keys)
            value = attention.split_heads(layer_values)
            x = x + attention.attend_memory(normed, key, value, bias)

            source = layer.src_attn
            key = source.split_heads(cross_keys[number])
            value = source.split_heads(cross_values[number])
            x = x + source.attend_memory(layer.norm2(x), key, value, no_bias)
            x = x + layer.feed_forward(layer.norm3(x))

        return self.decoder._project_to_logits(x), torch.stack(new_keys), torch.stack(new_values)


def whisper_graphs(model: Whisper, tokenizer: Tokenizer, feature_dim: int) -> dict[str, Graph]:
    """Return the graphs of encoder and decoder by file name.

    Raises:
        ValueError: sherpa-onnx does not support the decoder or the tokenizer.
    """
    decoder = model.decoder
    has_table = decoder.max_tokens is not None
    shares_keys = decoder.key_heads != _count_decoder_heads(model)
    if not has_table or not decoder.normalize_before or shares_keys:
        raise ValueError(
            "sherpa-onnx needs a decoder with embed_learnable_pe and normalize_before, without "
            "n_kv_head"
        )

    metadata = _graph_metadata(model, tokenizer, feature_dim)
    copied = _traceable_whisper(model)
    encoder_graph = _encoder_graph(copied, feature_dim, metadata)
    decoder_graph = _decoder_graph(copied, metadata)
    return {ENCODER_FILE: encoder_graph, DECODER_FILE: decoder_graph}


def _encoder_graph(model: Whisper, feature_dim: int, metadata: dict[str, object]) -> Graph:
    """Return the graph of the encoder, which gives the keys and values of its frames."""
    dynamic_axes = {
        "mel": {0: "n_audio", 2: "T"},
        "n_layer_cross_k": {1: "n_audio", 2: "T"},
        "n_layer_cross_v": {1: "n_audio", 2: "T"},
    }
    # An example for tracing: any number of frames does, because this axis is dynamic.
    inputs = {"mel": torch.randn(1, feature_dim, 60)}
    outputs = ("n_layer_cross_k", "n_layer_cross_v")
    return Graph(CrossKeys(model), inputs, outputs, dynamic_axes, metadata)


def _decoder_graph(model: Whisper, metadata: dict[str, object]) -> Graph:
    """Return the graph of the decoder, with caches of its keys and values as inputs and outputs."""
    max_tokens = model.decoder.max_tokens
    assert max_tokens is not None, "sherpa-onnx was refused without a table of positions"
    layers, width = len(model.decoder.decoders), model.encoder.traits.output_size

    # Examples for tracing: any numbers of frames and tokens do, because these axes are dynamic.
    inputs = {
        "tokens": torch.randint(10, (1, 3)),
        "in_n_layer_self_k_cache": torch.zeros(layers, 1, max_tokens, width),
        "in_n_layer_self_v_cache": torch.zeros(layers, 1, max_tokens, width),
        "n_layer_cross_k": torch.randn(layers, 1, 9, width),
        "n_layer_cross_v": torch.randn(layers, 1, 9, width),
        "offset": torch.tensor([2]),
    }
    outputs = ("logits", "out_n_layer_self_k_cache", "out_n_layer_self_v_cache")
    dynamic_axes = {
        "tokens": {0: "n_audio", 1: "n_tokens"},
        "logits": {0: "n_audio", 1: "n_tokens"},
        "n_layer_cross_k": {1: "n_audio", 2: "T"},
        "n_layer_cross_v": {1: "n_audio", 2: "T"},
        "in_n_layer_self_k_cache": {1: "n_audio"},
        "in_n_layer_self_v_cache": {1: "n_audio"},
        "out_n_layer_self_k_cache": {1: "n_audio"},
        "out_n_layer_self_v_cache": {1: "n_audio"},
    }
    return Graph(CachedDecoder(model), inputs, outputs, dynamic_axes, metadata)


class _TracedPositions(WhisperPositionalEncoding):
    """The positions of a model without the `if` that a trace cannot keep."""

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return encodings (1, size, dim) of the first positions; `offset` is 0.

        The table of the model has those of 30 s; those after it are computed.
        """
        table = self.pe[:, :size]
        computed = whisper_sinusoids(offset, size, self.dim, like.device)
        return torch.cat((table, computed[:, self.pe.size(1) :]), dim=1)


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


def _count_decoder_heads(model: Whisper) -> int:
    """Return the number of heads of the self-attention in the decoder."""
    return next(model.decoder._layers()).self_attn.heads


def _graph_metadata(model: Whisper, tokenizer: Tokenizer, feature_dim: int) -> dict[str, object]:
    """Return the metadata that sherpa-onnx reads from both files.

    Raises:
        ValueError: the tokens are no byte pairs.
    """
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
        "n_text_head": _count_decoder_heads(model),
        "n_text_layer": len(model.decoder.decoders),
    }
    special_ids = {name: tokens.ids[name] for name in TOKENS if name != "timestamp_begin"}
    return {
        "model_type": "whisper-wenet_uio",
        "version": "1",
        "maintainer": "wenet_uio",
        **sizes,
        **special_ids,
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
    lines = []
    for symbol, token_id in sorted(tokenizer.symbols.items(), key=lambda item: item[1]):
        if token_id < eot:
            encoded = base64.b64encode(bytes_of(symbol)).decode()
            lines.append(f"{encoded} {token_id}\n")
    return "".join(lines)


def whisper_feature_differences(conf: DatasetConf) -> list[str]:
    """Return the feature settings of the model that differ from sherpa-onnx, as `key: value, value
    in sherpa-onnx`.
    """
    if conf.feats_type != "log_mel_spectrogram":
        return [f"feats_type: {conf.feats_type}, log_mel_spectrogram in sherpa-onnx"]

    ours, theirs = conf.log_mel_spectrogram_conf, LogMelSpectrogramConf()
    differences = []
    for key in ("n_fft", "hop_length"):
        our_value, their_value = getattr(ours, key), getattr(theirs, key)
        if our_value != their_value:
            differences.append(
                f"log_mel_spectrogram_conf.{key}: {our_value}, {their_value} in sherpa-onnx"
            )

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
    encoder = open_session(contents[ENCODER_FILE], ENCODER_FILE)
    decoder = open_session(contents[DECODER_FILE], DECODER_FILE)

    def compare_one(key: str, feats: torch.Tensor) -> tuple[float, int, Difference | None]:
        """Return the largest difference of log-probabilities, the number of tokens, and both texts
        if they differ.
        """
        padded = nn.functional.pad(feats, (0, 0, 0, TAIL))
        expected, exported = _score_with_both(model, encoder, decoder, padded)
        difference = (exported - expected).abs().max().item()
        if torch.equal(expected.argmax(1), exported.argmax(1)):
            return difference, len(expected), None

        text = _best_text(expected, model.eos)
        exported_text = _best_text(exported, model.eos)
        return difference, len(expected), Difference(key, "attention", text, exported_text)

    return compare_examples(examples, limit, compare_one)


def _score_with_both(
    model: Whisper, encoder: InferenceSession, decoder: InferenceSession, feats: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities (U, V) of the text that the trained model recognises, by the trained
    and the exported model; feats are (1, T, F).
    """
    lengths = torch.tensor([feats.size(1)])
    results = decode(model, feats, lengths, ["attention"], DecodeOptions(beam_size=1))
    best = results["attention"][0][0]  # of the only utterance, the best hypothesis
    prompt = model.tokens.prompt(best.language or "en")
    tokens = torch.tensor([[*prompt, *best.tokens]])[:, : model.decoder.max_tokens]

    encoder_out, _ = model.encode(feats, lengths)
    num_tokens = torch.tensor([tokens.size(1)])
    expected, _ = model.forward_attention_decoder(tokens, num_tokens, encoder_out)  # (1, P + U, V)

    cross_keys, cross_values = encoder.run(None, {"mel": feats.transpose(1, 2).numpy()})
    logits = _score_tokens(decoder, tokens, len(prompt), cross_keys, cross_values)
    exported = logits.log_softmax(2)

    first = len(prompt) - 1  # the last token of the prompt predicts the first of the text
    return expected[0, first:], exported[0, first:]


def _best_text(scores: torch.Tensor, eot: int) -> tuple[int, ...]:
    """Return the best tokens of scores (U, V) that are text."""
    return tuple(token for token in scores.argmax(1).tolist() if token < eot)


def _score_tokens(
    decoder: InferenceSession,
    tokens: torch.Tensor,
    prompt_length: int,
    cross_keys: Any,
    cross_values: Any,
) -> torch.Tensor:
    """Return logits (1, U, V) of tokens (1, U) by the exported decoder: the prompt in one call,
    then token by token, as sherpa-onnx does.

    Args:
        cross_keys, cross_values: arrays (L, 1, T', D) of the exported encoder.
    """
    shapes = {tensor.name: tensor.shape for tensor in decoder.get_inputs()}
    layers, _, positions, width = shapes["in_n_layer_self_k_cache"]
    keys = torch.zeros(layers, 1, positions, width).numpy()
    values = torch.zeros(layers, 1, positions, width).numpy()

    scores, start = [], 0
    for end in range(prompt_length, tokens.size(1) + 1):
        inputs = {
            "tokens": tokens[:, start:end].numpy(),
            "in_n_layer_self_k_cache": keys,
            "in_n_layer_self_v_cache": values,
            "n_layer_cross_k": cross_keys,
            "n_layer_cross_v": cross_values,
            "offset": torch.tensor([start]).numpy(),
        }
        logits, keys, values = decoder.run(None, inputs)
        scores.append(torch.from_numpy(logits))
        start = end

    return torch.cat(scores, dim=1)
