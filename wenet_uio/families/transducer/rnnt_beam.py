"""Time-synchronous beam search of a transducer: up to three tokens a frame, then a blank.

Saon et al. 2020, "Alignment-length synchronous decoding for RNN transducer", section 2. WeNet's
search has at most one token a frame, which misses letters that are spoken fast; with a share of CTC
this one has so, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from wenet_uio.families.transducer.model import Transducer
from wenet_uio.search.prefix_scorer import PrefixScorer, join_scorers
from wenet_uio.search.types import Hypothesis, NBest

TOKENS_A_FRAME = 3
"""Most tokens of a sequence in a frame. A fourth one changed no error rate with letters."""
MULTIPLIER = 6364136223846793005
"""Of the hashes by which sequences are told apart (Knuth's linear congruence, modulo 2**64)."""


class _Growth(NamedTuple):
    """How K sequences of each of B utterances have grown since the beginning of a frame."""

    parents: torch.Tensor
    """(B, K) place in the beam at the beginning of the frame."""
    tokens: torch.Tensor
    """(B, K, R) tokens of the frame, -1 after the last one."""
    confidences: torch.Tensor
    """(B, K, R) their probabilities."""


class _Beam(NamedTuple):
    """K token sequences of each of B utterances; unused ones score -inf."""

    scores: torch.Tensor
    """(B, K) log-probability, with the bonus of the scorer."""
    hashes: torch.Tensor
    """(B, K) int64, equal for equal sequences."""
    growth: _Growth
    predicted: torch.Tensor
    """(B, K, D) output of the predictor after each sequence."""
    state: list[torch.Tensor]
    """Tensors (B, K, ...): its state."""
    scored: torch.Tensor
    """(B, K, S) states of the scorer; S is 0 without one."""


def rnnt_beam_search(
    model: Transducer,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    beam_size: int,
    ctc_log_probs: torch.Tensor | None = None,
    transducer_weight: float = 1.0,
    scorers: Sequence[PrefixScorer] = (),
) -> list[NBest]:
    """Keep the `beam_size` best token sequences of every utterance after every frame.

    At a frame a sequence grows by up to three tokens, and a blank leads to the next frame. If
    several ways lead to the same sequence, their probabilities are added. After each token, the
    `beam_size` best grown sequences stay. With a share of CTC, a sequence either grows by one token
    at a frame or has a blank, as a path of CTC. All utterances and sequences are searched together.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
        ctc_log_probs: (B, T', V), needed for a transducer_weight below 1.
        transducer_weight: share of the transducer in the probability of each token; CTC has the
            rest.
        scorers: hot words and language models, whose bonuses are added to the log-probabilities by
            which sequences are compared. With them, a token is one of the `beam_size` best of the
            utterance at this frame, as in CTC prefix beam search.

    Returns:
        Per utterance at most `beam_size` hypotheses, best first, with frame and confidence of each
        token on the best path; their scores include the bonuses.
    """
    assert transducer_weight == 1.0 or ctc_log_probs is not None, "a share below 1 needs CTC"
    scorer = join_scorers([scorer.begin() for scorer in scorers])
    beam = _first_beam(model, scorer, len(lengths), beam_size, encoder_out.device)
    steps: list[_Growth] = []
    for frame in range(encoder_out.size(1)):
        encoded = encoder_out[:, frame : frame + 1]
        if ctc_log_probs is None or transducer_weight == 1.0:
            reached = _reach_by_transducer(model, scorer, beam, encoded)
        else:
            ctc = ctc_log_probs[:, frame : frame + 1] + math.log1p(-transducer_weight)
            reached = _reach_with_ctc(
                model, scorer, beam, encoded, ctc, math.log(transducer_weight)
            )

        beam, growth = _best_sequences(reached, beam, frame < lengths)
        steps.append(growth)

    scores = beam.scores if scorer is None else beam.scores + scorer.end(beam.scored).float()
    return _trace_hypotheses(steps, scores)


def _first_beam(
    model: Transducer,
    scorer: PrefixScorer | None,
    batch: int,
    beam_size: int,
    device: torch.device,
) -> _Beam:
    """Return the empty sequence of every utterance."""
    scores = torch.full((batch, beam_size), -torch.inf, device=device)
    scores[:, 0] = 0.0
    blanks = torch.full((batch * beam_size, 1), model.blank, device=device)
    predicted, state = model.predictor(blanks, model.predictor.start(batch * beam_size))
    hashes = torch.zeros(batch, beam_size, dtype=torch.int64, device=device)
    by_beam = (batch, beam_size)
    state = [tensor.unflatten(0, by_beam) for tensor in state]
    state_size = 0 if scorer is None else scorer.state_size
    scored = torch.zeros(*by_beam, state_size, dtype=torch.int64, device=device)
    predicted = predicted.view(*by_beam, -1)
    return _Beam(scores, hashes, _no_growth(hashes), predicted, state, scored)


def _no_growth(hashes: torch.Tensor) -> _Growth:
    """Return the growth at the beginning of a frame, of sequences with these hashes (B, K)."""
    tokens = torch.full((*hashes.shape, TOKENS_A_FRAME), -1, device=hashes.device)
    return _Growth(_place_numbers(hashes), tokens, torch.zeros(tokens.shape, device=hashes.device))


def _reach_by_transducer(
    model: Transducer, scorer: PrefixScorer | None, beam: _Beam, encoded: torch.Tensor
) -> list[_Beam]:
    """Return the sequences that a frame (B, 1, D) leads to, each followed by a blank."""
    reached: list[_Beam] = []
    for count in range(TOKENS_A_FRAME + 1):
        log_probs = _log_probs(model, beam, encoded)
        reached.append(_add_blank(model.blank, beam, log_probs))
        if count < TOKENS_A_FRAME:
            beam = _grow_by_token(model, scorer, beam, log_probs, count)

    return reached


def _reach_with_ctc(
    model: Transducer,
    scorer: PrefixScorer | None,
    beam: _Beam,
    encoded: torch.Tensor,
    ctc: torch.Tensor,
    weight: float,
) -> list[_Beam]:
    """Return the sequences that stay at a frame and those that grow by a token.

    Args:
        ctc: (B, 1, V) logarithms of its share times the probabilities of CTC.
        weight: logarithm of the share of the transducer.
    """
    log_probs = torch.logaddexp(_log_probs(model, beam, encoded) + weight, ctc)
    return [
        _add_blank(model.blank, beam, log_probs),
        _grow_by_token(model, scorer, beam, log_probs, 0),
    ]


def _log_probs(model: Transducer, beam: _Beam, encoded: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities (B, K, V) of the next token at a frame (B, 1, D)."""
    return model.joint(encoded, beam.predicted).float().log_softmax(dim=2)


def _add_blank(blank: int, beam: _Beam, log_probs: torch.Tensor) -> _Beam:
    """Return the sequences with the score of a blank after them."""
    return beam._replace(scores=beam.scores + log_probs[:, :, blank])


def _grow_by_token(
    model: Transducer,
    scorer: PrefixScorer | None,
    beam: _Beam,
    log_probs: torch.Tensor,
    count: int,
) -> _Beam:
    """Return the best sequences of one token more.

    Args:
        log_probs: (B, K, V) of the next token.
        count: number of tokens that the sequences have got in this frame.
    """
    scores = beam.scores.unsqueeze(2) + log_probs
    scores[:, :, model.blank] = -torch.inf
    labels, scores, scored = _choose_extensions(scorer, beam, scores)

    # The K best of all (sequence, label); of each its sequence and its token, (B, K).
    scores, choice = scores.flatten(1).topk(beam.scores.size(1), dim=1)
    rows, place = choice // labels.size(1), choice % labels.size(1)
    token = labels.gather(1, place)

    parents = _take_rows(beam.growth.parents, rows)
    tokens = _take_rows(beam.growth.tokens, rows)
    confidences = _take_rows(beam.growth.confidences, rows)
    tokens[:, :, count] = token
    chosen = rows * log_probs.size(2) + token  # numbers of (sequence, token) in (K * V)
    confidences[:, :, count] = log_probs.flatten(1).gather(1, chosen).exp()

    # The predictor takes the B * K sequences as one batch.
    state = [_take_rows(tensor, rows).flatten(0, 1) for tensor in beam.state]
    predicted, state = model.predictor(token.reshape(-1, 1), state)

    return _Beam(
        scores=scores,
        hashes=_take_rows(beam.hashes, rows) * MULTIPLIER + token + 1,
        growth=_Growth(parents, tokens, confidences),
        predicted=predicted.view(*token.shape, -1),
        state=[tensor.unflatten(0, token.shape) for tensor in state],
        scored=_take_rows(scored.flatten(1, 2), choice),
    )


def _choose_extensions(
    scorer: PrefixScorer | None, beam: _Beam, scores: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose the tokens by which the sequences of a beam may grow: all V, or with a scorer the K
    tokens of each utterance that are best after any sequence, as a scorer is slow.

    Args:
        scores: (B, K, V) of each sequence with each token, without the bonus of this token.

    Returns:
        The tokens (B, L), the scores (B, K, L) of each sequence with each of them and its bonus,
        and the states (B, K, L, S) of the scorer after them; S is 0 without a scorer.
    """
    batch, sequences, units = scores.shape
    if scorer is None:
        tokens = torch.arange(units, device=scores.device).expand(batch, units)
        no_states = beam.scored.unsqueeze(2).expand(-1, -1, units, -1)  # (B, K, V, 0)
        return tokens, scores, no_states

    best_of_token = scores.amax(dim=1)  # (B, V), after any sequence
    tokens = best_of_token.topk(min(sequences, units), dim=1).indices
    scores = scores.gather(2, tokens.unsqueeze(1).expand(-1, sequences, -1))
    is_possible = scores > -torch.inf
    states, bonuses = scorer.extend(beam.scored, tokens, is_possible)
    return tokens, scores + bonuses.float(), states


def _best_sequences(
    reached: list[_Beam], before: _Beam, active: torch.Tensor
) -> tuple[_Beam, _Growth]:
    """Return the best of all sequences that a frame led to, where equal ones are one, and how they
    have grown.

    Args:
        active: (B,); other utterances have ended and stay as they are.
    """
    scores = torch.cat([beam.scores for beam in reached], dim=1)
    hashes = torch.cat([beam.hashes for beam in reached], dim=1)
    # N is the number of all sequences. Of equal ones, the first has the sum of all their ways.
    equal = hashes.unsqueeze(2) == hashes.unsqueeze(1)  # (B, N, N)
    ways = scores.unsqueeze(1).masked_fill(~equal, -torch.inf)  # (B, N, N)
    is_first = ~equal.tril(-1).any(dim=2)  # (B, N)
    sums = ways.logsumexp(dim=2).masked_fill(~is_first, -torch.inf)
    sums, chosen = sums.topk(before.scores.size(1), dim=1)

    # The path of a sequence is its best way. Ended utterances keep their places, which come first.
    active = active.unsqueeze(1)
    path = ways.argmax(dim=2).gather(1, chosen)
    path = torch.where(active, path, _place_numbers(path))

    def on_path(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the rows of the kept sequences; `tensors` are those of the beams, (B, K, ...)."""
        return _take_rows(torch.cat(tensors, dim=1), path)

    growth = _Growth(
        parents=on_path(tuple(beam.growth.parents for beam in reached)),
        tokens=on_path(tuple(beam.growth.tokens for beam in reached)),
        confidences=on_path(tuple(beam.growth.confidences for beam in reached)),
    )
    hashes = _take_rows(hashes, path)
    state: list[torch.Tensor] = []
    for number in range(len(before.state)):
        state.append(on_path(tuple(beam.state[number] for beam in reached)))

    best = _Beam(
        scores=torch.where(active, sums, before.scores),
        hashes=hashes,
        growth=_no_growth(hashes),
        predicted=on_path(tuple(beam.predicted for beam in reached)),
        state=state,
        scored=on_path(tuple(beam.scored for beam in reached)),
    )
    return best, growth


def _place_numbers(like: torch.Tensor) -> torch.Tensor:
    """Return 0, 1, … for each utterance, in the shape (B, K)."""
    return torch.arange(like.size(1), device=like.device).expand_as(like)


def _take_rows(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the rows (B, K) of values (B, N, ...) -> (B, K, ...)."""
    index = rows.view(list(rows.shape) + [1] * (values.dim() - 2))  # (B, K, 1, ...)
    return values.gather(1, index.expand(*rows.shape, *values.shape[2:]))


def _trace_hypotheses(steps: list[_Growth], scores: torch.Tensor) -> list[NBest]:
    """Follow the sequences back through the frames.

    Args:
        scores: (B, K) at the end.

    Returns:
        The hypotheses of each utterance, best first; those of probability 0 are left out.
    """
    if not steps:
        return [[Hypothesis((), 0.0, (), ())] for _ in scores]

    scores, rows = scores.sort(dim=1, descending=True, stable=True)
    paths: list[tuple[torch.Tensor, torch.Tensor]] = []
    for step in reversed(steps):
        paths.append((_take_rows(step.tokens, rows), _take_rows(step.confidences, rows)))
        rows = _take_rows(step.parents, rows)

    paths.reverse()
    tokens = torch.stack([tokens for tokens, _ in paths], dim=2).cpu()  # (B, K, T', R)
    confidences = torch.stack([confidences for _, confidences in paths], dim=2).cpu()
    nbests: list[NBest] = []
    for utterance, scores_of_rows in enumerate(scores.tolist()):
        nbest: NBest = []
        for row, score in enumerate(scores_of_rows):
            if score == -torch.inf:
                continue

            tokens_of_path = tokens[utterance, row]  # (T', R), -1 where there is none
            frames, places = (tokens_of_path >= 0).nonzero(as_tuple=True)
            hypothesis = Hypothesis(
                tuple(tokens_of_path[frames, places].tolist()),
                score,
                tuple(frames.tolist()),
                tuple(confidences[utterance, row, frames, places].tolist()),
            )
            nbest.append(hypothesis)

        nbests.append(nbest)

    return nbests
