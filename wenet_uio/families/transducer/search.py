"""Decode modes of a transducer."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wenet_uio.families.transducer.model import Transducer
from wenet_uio.families.transducer.rnnt_beam import rnnt_beam_search
from wenet_uio.search.decode import Decoding
from wenet_uio.search.modes import refuse_mode
from wenet_uio.search.types import DecodeOptions, Hypothesis, NBest

MAX_TOKENS_A_FRAME = 64
"""As in WeNet. Limits the loop for a model that never gives a blank."""


def rnnt_greedy_search(
    model: Transducer, encoder_out: torch.Tensor, lengths: torch.Tensor
) -> list[NBest]:
    """Take the best token of a frame until it is blank, then go to the next frame; all utterances
    together.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.

    Returns:
        Per utterance one hypothesis, with frame and confidence of each token; its score is the
        log-probability of the path.
    """
    batch = len(lengths)
    rows = torch.arange(batch, device=lengths.device)
    # The frame of each utterance, and the number of tokens that it has taken in that frame.
    frame, tokens_in_frame = torch.zeros_like(lengths), torch.zeros_like(lengths)
    scores = torch.zeros(batch, device=lengths.device)
    blanks = torch.full((batch, 1), model.blank, device=lengths.device)
    predicted, state = model.predictor(blanks, model.predictor.start(batch))
    steps: list[torch.Tensor] = []  # (B, 3) each: token or -1, frame, confidence

    # A step takes an utterance at most one frame further, so the host asks the device, and waits
    # for its answer, only after as many steps as the most frames that an utterance still has.
    while (most_frames_left := int((lengths - frame).max())) > 0:
        for _ in range(most_frames_left):
            active = frame < lengths
            encoded = encoder_out[rows, frame.clamp(max=encoder_out.size(1) - 1)]  # (B, D)
            log_probs = model.joint(encoded, predicted[:, 0]).float().log_softmax(dim=1)
            best, token = log_probs.max(dim=1)
            scores += best.masked_fill(~active, 0.0)
            grows = active & (token != model.blank)
            # -1 for a step without a token.
            chosen = token.masked_fill(~grows, -1).double()
            steps.append(torch.stack((chosen, frame.double(), best.double().exp()), dim=1))

            predicted_after, state_after = model.predictor(token.unsqueeze(1), state)
            predicted = choose_rows(grows, predicted_after, predicted)
            state = [
                choose_rows(grows, after, before)
                for after, before in zip(state_after, state, strict=True)
            ]

            # Blank leads to the next frame, and so do too many tokens in one frame.
            tokens_in_frame = (tokens_in_frame + 1).masked_fill(~grows, 0)
            moves = active & (~grows | (tokens_in_frame == MAX_TOKENS_A_FRAME))
            tokens_in_frame = tokens_in_frame.masked_fill(moves, 0)
            frame = frame + moves.to(frame.dtype)

    if not steps:
        return [[Hypothesis((), 0.0, (), ())] for _ in range(batch)]

    nbests: list[NBest] = []
    for path, score in zip(torch.stack(steps, dim=2).cpu(), scores.tolist(), strict=True):
        tokens, frames, confidences = path[:, path[0] >= 0]
        hypothesis = Hypothesis(
            tuple(tokens.long().tolist()),
            score,
            tuple(frames.long().tolist()),
            tuple(confidences.tolist()),
        )
        nbests.append([hypothesis])

    return nbests


def choose_rows(rows: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return rows of `new` (N, ...) where `rows` (N,) is True, and rows of `old` (N, ...)
    elsewhere.
    """
    shape = [len(rows)] + [1] * (new.dim() - 1)
    return torch.where(rows.view(shape), new, old)


def decode_greedily(batch: Decoding[Transducer]) -> list[NBest]:
    """Decode in the mode rnnt_greedy_search."""
    return rnnt_greedy_search(batch.model, batch.encoder_out, batch.lengths)


def decode_with_beam(batch: Decoding[Transducer]) -> list[NBest]:
    """Decode in the mode rnnt_beam_search; CTC helps with a transducer_weight below 1."""
    options = batch.options
    log_probs = batch.ctc_log_probs if options.transducer_weight < 1 else None
    return rnnt_beam_search(
        batch.model,
        batch.encoder_out,
        batch.lengths,
        options.beam_size,
        log_probs,
        options.transducer_weight,
        batch.scorers,
    )


def check_search(model: Transducer, modes: Sequence[str], options: DecodeOptions) -> None:
    """Refuse to share the beam search with a CTC that was not trained.

    Raises:
        ValueError: transducer_weight is below 1, and the model was trained with ctc_weight 0.
    """
    if "rnnt_beam_search" in modes and options.transducer_weight < 1 and model.ctc_weight == 0:
        refuse_mode(model, "rnnt_beam_search", "ctc_weight")
