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
from wenet_uio.search.decode import decode
from wenet_uio.search.types import DecodeOptions
from wenet_uio.text.wer import Counts, align

MODES = ("ctc_greedy_search", "attention_rescoring")

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Limits:
    """How far an exported model may be from its checkpoint."""

    log_prob: float = 1e-3
    """Largest absolute difference of a CTC log-probability."""
    token_errors: float = 0.0
    """Of the checkpoint's tokens, in %."""


INT8 = Limits(log_prob=math.inf, token_errors=10.0)
"""Rounding moves log-probabilities far where they are small; what counts is what is recognised."""


@dataclass(frozen=True)
class Reference:
    """What the checkpoint makes of an utterance."""

    key: str
    feats: torch.Tensor
    """(1, T, F)."""
    log_probs: torch.Tensor
    """(1, T', V), of CTC."""
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
    """Largest absolute difference of a CTC log-probability."""
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
        log_probs = _log_probs(model, feats, options)
        nbests = decode(model, feats, torch.tensor([feats.size(1)]), MODES, options)
        references.append(Reference(key, feats, log_probs, {mode: nbests[mode][0][0].tokens for mode in MODES}))
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
        found = _log_probs(exported, reference.feats, options)
        if found.shape != reference.log_probs.shape:
            raise ValueError(
                f"{reference.key}: the exported model gives log-probabilities of shape {tuple(found.shape)}, the "
                f"checkpoint {tuple(reference.log_probs.shape)}"
            )
        difference = (reference.log_probs - found).abs().max().item()
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
    if agreement.token_errors > limits.token_errors:
        raise ValueError(f"{path}: not written: more than {limits.token_errors:g} % of the tokens differ: {said}")
    if not agreement.largest <= limits.log_prob:
        raise ValueError(f"{path}: not written: log-probabilities differ by more than {limits.log_prob:g}: {said}")
    return f"{path}: {said}"


def _log_probs(
    model: ASRModel | ExportedModel | SherpaOnnx, feats: torch.Tensor, options: DecodeOptions
) -> torch.Tensor:
    encoder_out, _ = model.encode(
        feats, torch.tensor([feats.size(1)]), options.decoding_chunk_size, options.num_decoding_left_chunks
    )
    return model.ctc_log_probs(encoder_out)
