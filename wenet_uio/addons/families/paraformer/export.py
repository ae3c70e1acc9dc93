"""A Paraformer for sherpa-onnx: its graph, its tokens.txt, and the check against the checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from wenet_uio.addons.encoders.sanm.encoder import low_frame_rate
from wenet_uio.addons.families.paraformer import PARAFORMER
from wenet_uio.addons.families.paraformer.model import Paraformer
from wenet_uio.addons.families.paraformer.tokenizer import SegDictSplitter
from wenet_uio.addons.runtimes.onnx_graphs import Graph
from wenet_uio.addons.runtimes.onnx_models import OnnxModel
from wenet_uio.addons.runtimes.onnx_modules import traceable
from wenet_uio.addons.runtimes.sherpa import SherpaOnly, feature_differences
from wenet_uio.config.dataset import FbankConf
from wenet_uio.export.check import Agreement, Difference, Tokens, compare_examples
from wenet_uio.export.command import Trained
from wenet_uio.models.masks import length_mask
from wenet_uio.search.decode import decode
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

FBANK = FbankConf(window_type="hamming")
"""Feature settings of sherpa-onnx 2.0 for paraformers."""
GREEDY = "paraformer_greedy_search"


def sherpa(trained: Trained) -> SherpaOnly:
    """Return the files of a trained paraformer for sherpa-onnx, and how to check them.

    Raises:
        ValueError: sherpa-onnx does not support the tokenizer.
    """
    model, config = trained.model, trained.config
    assert isinstance(model, Paraformer), "the family builds no other model"

    def compare_files(files: Mapping[str, bytes]) -> Agreement:
        examples, limit = trained.examples(), trained.arguments.num_check
        return compare_paraformer(files["model.onnx"], model, examples, limit)

    return SherpaOnly(
        {"model.onnx": paraformer_graph(model, config.feature_dim)},
        paraformer_tokens(trained.tokenizer, model),
        feature_differences(config.dataset_conf, FBANK),
        compare_files,
        PARAFORMER.exchange.wenet_obstacle,
        model.encoder.traits.obstacle,
    )


class ParaformerModule(nn.Module):
    """Features -> log-probabilities of all tokens, and their numbers.

    sherpa-onnx takes the tokens of an utterance up to the first <eos> and does not look at their
    number, so <eos> is the best label after the last token.
    """

    def __init__(self, model: Paraformer) -> None:
        super().__init__()
        self.model = model
        end = torch.full((model.vocab_size,), -1e4)
        end[model.eos] = 0.0
        self.end: torch.Tensor
        self.register_buffer("end", end)

    def forward(
        self, speech: torch.Tensor, speech_lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute log-probabilities (N, U, V) and numbers of tokens (N,) int32 of features (N, T,
        F) of lengths (N,) int32.
        """
        model = self.model
        frames, frame_lengths = low_frame_rate(speech, speech_lengths.long())
        encoder_out, lengths = model.encoder(frames, frame_lengths)
        is_frame = length_mask(lengths, encoder_out.size(1))
        weights = model.predictor.weigh_frames(encoder_out, is_frame)
        embeds, counts, _ = model.predictor.find(encoder_out, weights, lengths)
        logits = model.decoder(encoder_out, lengths, embeds, counts)

        is_token = length_mask(counts, logits.size(1)).unsqueeze(2)
        log_probs = torch.where(is_token, logits.log_softmax(dim=2), self.end)
        return log_probs, counts.int()


def paraformer_graph(model: Paraformer, feature_dim: int) -> Graph:
    """Return the graph for sherpa-onnx. It stacks and normalises the frames itself, as the
    checkpoint does.

    By its metadata, sherpa-onnx stacks 1 frame and normalises with mean 0 and deviation 1. Its own
    stacking begins three frames later and loses the last frames of an utterance.
    """
    copied = traceable(model)
    assert isinstance(copied, Paraformer)
    inputs = {
        "speech": torch.randn(2, 60, feature_dim),
        "speech_lengths": torch.tensor([60, 50], dtype=torch.int32),
    }
    outputs = ("logits", "token_num")
    dynamic_axes = {
        "speech": {0: "N", 1: "T"},
        "speech_lengths": {0: "N"},
        "logits": {0: "N", 1: "U"},
        "token_num": {0: "N"},
    }
    metadata = {
        "model_type": "paraformer",
        "version": 1,
        "model_author": "wenet_uio",
        "vocab_size": model.vocab_size,
        "lfr_window_size": 1,
        "lfr_window_shift": 1,
        "neg_mean": ",".join(["0"] * feature_dim),
        "inv_stddev": ",".join(["1"] * feature_dim),
    }
    return Graph(ParaformerModule(copied), inputs, outputs, dynamic_axes, metadata)


def paraformer_tokens(tokenizer: Tokenizer, model: Paraformer) -> str:
    """Return the text of tokens.txt: `symbol id` lines, with the name of <eos> that sherpa-onnx
    expects.

    Raises:
        ValueError: sherpa-onnx joins the units of this tokenizer in another way.
    """
    splitter = tokenizer.splitter
    splits_at_spaces = isinstance(splitter, CharSplitter) and splitter.split_with_space
    if not splits_at_spaces and not isinstance(splitter, SegDictSplitter):
        raise ValueError(
            "sherpa-onnx writes a space between the units of a paraformer: train with tokenizer "
            "paraformer, or with tokenizer_conf.split_with_space"
        )

    other_names = {model.sos: "<s>"}
    other_names[model.eos] = "</s>"  # also if it is the label of <sos>
    lines = []
    for symbol, label in sorted(tokenizer.symbols.items(), key=lambda item: item[1]):
        lines.append(f"{other_names.get(label, symbol)} {label}\n")
    return "".join(lines)


@torch.inference_mode()
def compare_paraformer(
    content: bytes, model: Paraformer, examples: Iterable[tuple[str, torch.Tensor]], limit: int
) -> Agreement:
    """Decode the first `limit` examples (key, feats (1, T, F)) with the graph as sherpa-onnx does,
    and with the model.

    Raises:
        ValueError: there is no example.
    """
    graph = OnnxModel(content)

    def compare_one(key: str, feats: torch.Tensor) -> tuple[float, int, Difference | None]:
        """Return the largest difference of log-probabilities, the number of tokens of the model,
        and both texts if they differ.
        """
        lengths = torch.tensor([feats.size(1)])
        results = decode(model, feats, lengths, [GREEDY], DecodeOptions())
        expected = results[GREEDY][0][0].tokens  # of the only utterance, the best hypothesis
        encoder_out, encoder_lengths = model.encode(feats, lengths)
        log_probs, predicted = model.predict(encoder_out, encoder_lengths)  # (1, N, V)
        exported_log_probs, counts = graph(speech=feats, speech_lengths=lengths.int())

        count = int(counts[0])
        difference = 0.0
        if count != int(predicted.counts[0]):
            difference = math.inf
        elif count:
            differences = log_probs[0, :count] - exported_log_probs[0, :count]
            difference = differences.abs().amax().item()

        exported = _cut_at_end(exported_log_probs[0].argmax(dim=1).tolist(), model.eos)
        if exported == expected:
            return difference, len(expected), None
        return difference, len(expected), Difference(key, GREEDY, expected, exported)

    return compare_examples(examples, limit, compare_one)


def _cut_at_end(tokens: list[int], eos: int) -> Tokens:
    """Return the tokens before the first <eos>; all without one."""
    if eos in tokens:
        tokens = tokens[: tokens.index(eos)]
    return tuple(tokens)
