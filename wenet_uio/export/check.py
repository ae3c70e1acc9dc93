"""Whether an exported model recognises what its checkpoint recognises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from wenet_uio.dataset.types import Batch
from wenet_uio.export.exported import ExportedModel, SherpaOnnx
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.scoring.wer import Counts, align
from wenet_uio.search.decode import decode
from wenet_uio.search.rescoring import attention_rescoring
from wenet_uio.search.types import DecodeOptions, Hypothesis

MODES = ("ctc_greedy_search", "attention_rescoring")

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Limits:
    """How far an exported model may be from its checkpoint."""

    log_prob: float = 1e-3
    """Largest absolute difference of a log-probability."""
    token_errors: float = 0.0
    """Of the checkpoint's tokens, in %."""
    tie: float = 0.0
    """Tokens may differ as they like where no log-probability differs by more: they were near ties."""


INT8 = Limits(log_prob=math.inf, token_errors=10.0, tie=1.0)
"""Rounding moves log-probabilities far where they are small; what counts is what is recognised. A model that has learnt
little is full of ties."""


@dataclass(frozen=True)
class Reference:
    """What the checkpoint makes of an utterance."""

    key: str
    feats: torch.Tensor
    """(1, T, F)."""
    log_probs: torch.Tensor
    """(1, T', V), of CTC."""
    decoder_score: float
    """Mean log-probability that the decoder gives the best hypothesis's tokens and their end."""
    tokens: dict[str, Tokens]
    """{mode: best hypothesis}."""


@dataclass(frozen=True)
class Difference:
    """An utterance for which the exported model gives other tokens."""

    key: str
    mode: str
    checkpoint: Tokens
    exported: Tokens


@dataclass(frozen=True)
class Agreement:
    """What the check found."""

    utterances: int
    differences: tuple[Difference, ...]
    largest: float
    """Largest absolute difference of a log-probability: of CTC, or the decoder's mean over a hypothesis."""
    tokens: int
    """Of the checkpoint, in all modes."""

    @property
    def differing(self) -> int:
        """Utterances that differ in any mode."""
        return len({difference.key for difference in self.differences})

    @property
    def token_errors(self) -> float:
        """Tokens substituted, left out or put in, in % of the checkpoint's."""
        pairs = ((map(str, found.checkpoint), map(str, found.exported)) for found in self.differences)
        errors = sum(Counts.of(align(list(tokens), list(others))).errors for tokens, others in pairs)
        return 100.0 * errors / max(1, self.tokens)


def utterances(batches: Iterable[Batch]) -> Iterator[tuple[str, torch.Tensor]]:
    """Keys and features (1, T, F) without padding."""
    for batch in batches:
        for key, feats, length in zip(batch.keys, batch.feats, batch.feats_lengths.tolist(), strict=True):
            yield key, feats[:length].unsqueeze(0)


@torch.inference_mode()
def recognise_all(
    model: ASRModel, examples: Iterable[tuple[str, torch.Tensor]], limit: int, options: DecodeOptions
) -> list[Reference]:
    """What the checkpoint makes of the first `limit` examples (key, feats (1, T, F)).

    Examples shorter than one window of the input layer have no encoder frames and are passed over.

    Raises:
        ValueError: when there is nothing to compare with.
    """
    model.eval()
    long_enough = (example for example in examples if example[1].size(1) > model.encoder.embed.right_context)
    references = []
    for key, feats in islice(long_enough, limit):
        encoder_out, log_probs = _encode(model, feats, options)
        nbests = decode(model, feats, torch.tensor([feats.size(1)]), MODES, options)
        tokens = {mode: nbests[mode][0][0].tokens for mode in MODES}
        decoder_score = _decoder_score(model, encoder_out, tokens["attention_rescoring"])
        references.append(Reference(key, feats, log_probs, decoder_score, tokens))
    if not references:
        raise ValueError("no utterance to check the exported model with")
    return references


@torch.inference_mode()
def compare(
    exported: ExportedModel | SherpaOnnx,
    references: Sequence[Reference],
    options: DecodeOptions,
    modes: Sequence[str] = MODES,
) -> Agreement:
    """Decode the references with the exported model; `options` as those of `recognise_all`."""
    differences: list[Difference] = []
    largest, tokens = 0.0, 0
    for reference in references:
        encoder_out, found = _encode(exported, reference.feats, options)
        if found.shape != reference.log_probs.shape:
            raise ValueError(
                f"{reference.key}: the exported model gives log-probabilities of shape {tuple(found.shape)}, the "
                f"checkpoint {tuple(reference.log_probs.shape)}"
            )
        found_differences = [(reference.log_probs - found).abs().max().item()]
        if "attention_rescoring" in modes:
            score = _decoder_score(exported, encoder_out, reference.tokens["attention_rescoring"])
            found_differences.append(abs(reference.decoder_score - score))
        for difference in found_differences:
            largest = largest if difference <= largest else difference  # a NaN stays
        nbests = decode(exported, reference.feats, torch.tensor([reference.feats.size(1)]), modes, options)
        for mode in modes:
            expected, others = reference.tokens[mode], nbests[mode][0][0].tokens
            tokens += len(expected)
            if expected != others:
                differences.append(Difference(reference.key, mode, expected, others))
    return Agreement(len(references), tuple(differences), largest, tokens)


def judge(path: str, agreement: Agreement, limits: Limits, detokenize: Callable[[Tokens], str]) -> str:
    """A line that says how the exported model agrees with the checkpoint.

    Raises:
        ValueError: when it does not, within `limits`; NaN is never within them.
    """
    said = (
        f"{agreement.utterances - agreement.differing} of {agreement.utterances} utterances as the checkpoint decodes "
        f"them; largest difference of a log-probability {agreement.largest:.2g}"
    )
    if agreement.differences:
        first = agreement.differences[0]
        texts = [detokenize(tokens) for tokens in (first.checkpoint, first.exported)]
        said += f"; {agreement.token_errors:.2f} % of the tokens; "
        said += f"{first.key} in {first.mode}: {texts[0]!r} became {texts[1]!r}"
    if agreement.token_errors > limits.token_errors and not agreement.largest <= limits.tie:
        raise ValueError(f"{path}: not written: more than {limits.token_errors:g} % of the tokens differ: {said}")
    if not agreement.largest <= limits.log_prob:
        raise ValueError(f"{path}: not written: log-probabilities differ by more than {limits.log_prob:g}: {said}")
    return f"{path}: {said}"


def _encode(
    model: ASRModel | ExportedModel | SherpaOnnx, feats: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encoder frames (1, T', D) and CTC log-probabilities (1, T', V) of an utterance."""
    encoder_out, _ = model.encode(
        feats, torch.tensor([feats.size(1)]), options.decoding_chunk_size, options.num_decoding_left_chunks
    )
    return encoder_out, model.ctc_log_probs(encoder_out)


def _decoder_score(model: ASRModel | ExportedModel, encoder_out: torch.Tensor, tokens: Tokens) -> float:
    """Mean log-probability of the tokens and their end, with the model's own reverse_weight."""
    reverse_weight = model.reverse_weight if model.decoder.bidirectional else 0.0
    nbests = [[Hypothesis(tokens, 0.0)]]
    lengths = torch.tensor([encoder_out.size(1)])
    rescored = attention_rescoring(model, nbests, encoder_out, lengths, ctc_weight=0.0, reverse_weight=reverse_weight)
    return rescored[0][0].score / (len(tokens) + 1)
