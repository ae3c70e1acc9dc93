"""Compare an exported model with its checkpoint: log-probabilities, and recognised tokens of real
utterances.

`recognise_all` decodes utterances with the checkpoint, `compare` decodes them with the exported
model and lists the differences, and `judge` raises an error if the differences exceed the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from wenet_uio.export.exported import Exported, ExportedModel
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.scoring.wer import Counts, align
from wenet_uio.search.ctc_path import ctc_greedy_search
from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search
from wenet_uio.search.decode import decode
from wenet_uio.search.rescoring import attention_rescoring
from wenet_uio.search.types import DecodeOptions, Hypothesis

GREEDY, RESCORING = "ctc_greedy_search", "attention_rescoring"
MODES = (GREEDY, RESCORING)
BOUNDARIES = 3
"""A check in chunks goes on for at least this many chunks after the left context is full."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Limits:
    """Largest differences between an exported model and its checkpoint that are accepted."""

    log_prob: float = 1e-3
    """Absolute difference of a log-probability."""
    token_errors: float = 0.0
    """Tokens that differ, in % of the checkpoint's tokens."""
    tie: float = 0.0
    """If no log-probability differs by more than this, any number of tokens may differ: their
    scores were almost equal."""


INT8 = Limits(log_prob=math.inf, token_errors=10.0, tie=1.0)
"""Rounding to int8 changes small log-probabilities a lot, so only the tokens are compared. The
hypotheses of a model with little training have almost equal scores, hence the limit `tie`."""


@dataclass(frozen=True)
class Reference:
    """An utterance, and the output of the checkpoint for it."""

    key: str
    feats: torch.Tensor
    """(1, T, F)."""
    log_probs: torch.Tensor
    """CTC log-probabilities (1, T', V)."""
    decoder_score: float
    """Mean log-probability of the decoder for the tokens of the best hypothesis and for its end."""
    tokens: dict[str, Tokens]
    """{mode: best hypothesis}."""
    is_beginning: bool = False
    """Only a beginning of an utterance, around one window of the input layer."""


@dataclass(frozen=True)
class Difference:
    """An utterance for which the exported model recognises other tokens than the checkpoint."""

    key: str
    mode: str
    checkpoint: Tokens
    exported: Tokens
    in_beginning: bool = False


@dataclass(frozen=True)
class Agreement:
    """Result of a comparison."""

    utterances: int
    """Number of utterances."""
    differences: tuple[Difference, ...]
    largest: float
    """Largest absolute difference of a log-probability: of CTC, or the decoder's mean over a
    hypothesis."""
    tokens: int
    """Number of tokens that the checkpoint recognised, in all modes."""
    beginnings: int = 0
    """Number of beginnings of an utterance, which `utterances` does not count."""

    @property
    def in_words(self) -> str:
        """How many utterances and beginnings are the same in all modes."""
        unlike = {diff.key for diff in self.differences if not diff.in_beginning}
        text = f"{self.utterances - len(unlike)} of {self.utterances} utterances"
        if self.beginnings:
            unlike = {diff.key for diff in self.differences if diff.in_beginning}
            text += f" and {self.beginnings - len(unlike)} of {self.beginnings} short beginnings"

        return text

    @property
    def token_errors(self) -> float:
        """Substituted, deleted and inserted tokens, in % of the checkpoint's tokens."""
        errors = 0
        for difference in self.differences:
            expected = list(map(str, difference.checkpoint))
            exported = list(map(str, difference.exported))
            errors += Counts.of(align(expected, exported)).errors

        return 100.0 * errors / max(1, self.tokens)


@torch.inference_mode()
def recognise_all(
    model: ASRModel,
    examples: Iterable[tuple[str, torch.Tensor]],
    limit: int,
    options: DecodeOptions,
) -> list[Reference]:
    """Decode the first `limit` examples (key, feats (1, T, F)) with the checkpoint.

    Examples shorter than one window of the input layer are skipped. If `options` has chunks, short
    examples are joined, because a model without any cache would pass a check within one chunk. The
    last references are beginnings of the first example in lengths around one window, as noises of
    a moment have them.

    Raises:
        ValueError: no example is long enough.
    """
    model.eval()
    long_enough = (
        example for example in examples if example[1].size(1) > model.encoder.embed.right_context
    )
    chosen = list(islice(long_enough, limit))
    if options.decoding_chunk_size > 0:
        chosen = join_examples(chosen, _frames_to_check(model, options))

    if not chosen:
        raise ValueError(
            "no utterance to check the exported model with: give a --check_data with longer "
            "utterances"
        )

    references = []
    beginnings = _short_beginnings(*chosen[0], model.encoder.embed.right_context)
    for number, (key, feats) in enumerate(chosen + beginnings):
        encoder_out, log_probs = _encode_example(model, feats, options)
        nbests = decode(model, feats, torch.tensor([feats.size(1)]), MODES, options)
        tokens = {mode: nbests[mode][0][0].tokens for mode in MODES}
        decoder_score = _decoder_score(model, encoder_out, tokens[RESCORING])
        is_beginning = number >= len(chosen)
        references.append(Reference(key, feats, log_probs, decoder_score, tokens, is_beginning))

    return references


def _short_beginnings(
    key: str, feats: torch.Tensor, context: int
) -> list[tuple[str, torch.Tensor]]:
    """Return the beginnings of an example (1, T, F) that have one window of the input layer, a
    frame less, and one frame alone; `context` is the right context of a window.
    """
    lengths = sorted({1, max(1, context), context + 1})
    return [(f"{key}, frames 0 to {length}", feats[:, :length]) for length in lengths]


def join_examples(
    examples: Sequence[tuple[str, torch.Tensor]], frames: int
) -> list[tuple[str, torch.Tensor]]:
    """Append to each example (key, feats (1, T, F)) the examples after it, in a circle, to at least
    `frames` frames.
    """
    examples_joined = []
    for number, (key, feats) in enumerate(examples):
        parts, length = [feats], feats.size(1)
        while length < frames:
            _, next_feats = examples[(number + len(parts)) % len(examples)]
            parts.append(next_feats)
            length += next_feats.size(1)

        name = f"{key} and {len(parts) - 1} more" if len(parts) > 1 else key
        examples_joined.append((name, torch.cat(parts, dim=1)))

    return examples_joined


@torch.inference_mode()
def compare(
    exported: Exported,
    references: Sequence[Reference],
    options: DecodeOptions,
    modes: Collection[str] = MODES,
) -> Agreement:
    """Decode the references with the exported model; `options` as in `recognise_all`.

    Raises:
        ValueError: the exported model returns log-probabilities of another shape.
    """
    differences: list[Difference] = []
    largest, tokens = 0.0, 0
    for reference in references:
        encoder_out, log_probs = _encode_example(exported, reference.feats, options)
        if log_probs.shape != reference.log_probs.shape:
            raise ValueError(
                f"{reference.key}: the exported model returns log-probabilities of shape "
                f"{tuple(log_probs.shape)}, the checkpoint {tuple(reference.log_probs.shape)}"
            )

        log_prob_gaps = [_largest_gap(reference.log_probs - log_probs)]
        recognised = {
            GREEDY: ctc_greedy_search(log_probs, _own_length(log_probs), exported.blank)[0][
                0
            ].tokens
        }
        if RESCORING in modes:
            assert isinstance(exported, ExportedModel), "model.onnx of sherpa-onnx has no decoder"
            score = _decoder_score(exported, encoder_out, reference.tokens[RESCORING])
            log_prob_gaps.append(abs(reference.decoder_score - score))
            recognised[RESCORING] = _rescored_tokens(exported, encoder_out, log_probs, options)

        for gap in log_prob_gaps:
            largest = _larger_or_nan(largest, gap)

        for mode in modes:
            expected, others = reference.tokens[mode], recognised[mode]
            tokens += len(expected)
            if expected != others:
                differences.append(
                    Difference(reference.key, mode, expected, others, reference.is_beginning)
                )

    beginnings = sum(reference.is_beginning for reference in references)
    return Agreement(len(references) - beginnings, tuple(differences), largest, tokens, beginnings)


def _largest_gap(differences: torch.Tensor) -> float:
    """Return the largest size of the differences; 0 if there is no frame."""
    return differences.abs().max().item() if differences.numel() else 0.0


def _larger_or_nan(first: float, second: float) -> float:
    """Return the larger number; NaN if one is NaN, which `max` may lose."""
    return math.nan if math.isnan(first) or math.isnan(second) else max(first, second)


def compare_examples(
    examples: Iterable[tuple[str, torch.Tensor]],
    limit: int,
    compare_one: Callable[[str, torch.Tensor], tuple[float, int, Difference | None]],
) -> Agreement:
    """Compare the first `limit` examples (key, feats (1, T, F)), one by one.

    Args:
        compare_one: returns the largest difference of scores, the number of tokens, and a
            difference of tokens.

    Raises:
        ValueError: there is no example.
    """
    largest, tokens, checked = 0.0, 0, 0
    differences: list[Difference] = []
    for key, feats in islice(examples, limit):
        gap, num_tokens, difference = compare_one(key, feats)
        largest = _larger_or_nan(largest, gap)
        tokens, checked = tokens + num_tokens, checked + 1
        if difference:
            differences.append(difference)

    if not checked:
        raise ValueError("no utterance to check the exported model with: give another --check_data")

    return Agreement(checked, tuple(differences), largest, tokens)


def judge(
    path: str, agreement: Agreement, limits: Limits, detokenize: Callable[[Tokens], str]
) -> str:
    """Describe in one line how far the exported model agrees with the checkpoint.

    Args:
        path: the exported file.
        agreement: result of `compare`.
        limits: differences that are accepted; NaN never is.
        detokenize: turns tokens into text.

    Raises:
        ValueError: the differences exceed `limits`.
    """
    line = (
        f"{agreement.in_words} as the checkpoint decodes them; largest difference of a "
        f"log-probability {agreement.largest:.2g}"
    )
    if agreement.differences:
        first = agreement.differences[0]
        texts = [detokenize(tokens) for tokens in (first.checkpoint, first.exported)]
        line += f"; {agreement.token_errors:.2f} % of the tokens differ; "
        line += f"{first.key} in {first.mode}: {texts[0]!r} became {texts[1]!r}"

    if agreement.token_errors > limits.token_errors and not agreement.largest <= limits.tie:
        raise ValueError(
            f"{path}: not written: more than {limits.token_errors:g} % of the tokens differ: {line}"
        )

    if not agreement.largest <= limits.log_prob:
        raise ValueError(
            f"{path}: not written: log-probabilities differ by more than {limits.log_prob:g}: "
            f"{line}"
        )

    return f"{path}: {line}"


def _encode_example(
    model: ASRModel | Exported, feats: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the encoder frames (1, T', D) and CTC log-probabilities (1, T', V) of an utterance."""
    encoder_out, lengths = model.encode(
        feats,
        torch.tensor([feats.size(1)]),
        options.decoding_chunk_size,
        options.num_decoding_left_chunks,
    )
    count = int(lengths[0])
    return encoder_out[:, :count], model.ctc_log_probs(encoder_out)[:, :count]


def _frames_to_check(model: ASRModel, options: DecodeOptions) -> int:
    """Return the feature frames that fill the left context and cross BOUNDARIES further boundaries
    of chunks.
    """
    chunks = max(options.num_decoding_left_chunks, 0) + 1 + BOUNDARIES
    embed = model.encoder.embed
    return chunks * options.decoding_chunk_size * embed.subsampling_rate + embed.right_context


def _own_length(frames: torch.Tensor) -> torch.Tensor:
    """Return the length (1,) of an utterance without padding (1, T', ...)."""
    return torch.tensor([frames.size(1)])


def _rescored_tokens(
    model: ExportedModel, encoder_out: torch.Tensor, log_probs: torch.Tensor, options: DecodeOptions
) -> Tokens:
    """Return the best hypothesis of attention rescoring; no tokens without frames."""
    if not encoder_out.size(1):
        return ()

    lengths = _own_length(encoder_out)
    nbests = ctc_prefix_beam_search(log_probs, lengths, options.beam_size, model.blank)
    reverse_weight = options.reverse_weight
    if reverse_weight is None:
        reverse_weight = _reverse_weight(model)

    rescored = attention_rescoring(
        model, nbests, (encoder_out, lengths), options.ctc_weight, reverse_weight
    )
    return rescored[0][0].tokens


def _decoder_score(
    model: ASRModel | ExportedModel, encoder_out: torch.Tensor, tokens: Tokens
) -> float:
    """Return the mean log-probability of the tokens and their end, with the reverse_weight of the
    model; 0 without frames.
    """
    if not encoder_out.size(1):
        return 0.0

    nbests = [[Hypothesis(tokens, 0.0)]]
    reverse_weight = _reverse_weight(model)
    rescored = attention_rescoring(
        model, nbests, (encoder_out, _own_length(encoder_out)), 0.0, reverse_weight
    )
    return rescored[0][0].score / (len(tokens) + 1)


def _reverse_weight(model: ASRModel | ExportedModel) -> float:
    """Return the weight of the right-to-left decoder of a model; 0 without one."""
    return model.reverse_weight if model.decoder.bidirectional else 0.0
