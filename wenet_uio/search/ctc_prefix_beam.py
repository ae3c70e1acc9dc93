"""CTC prefix beam search: find the token sequences with the highest sum over their paths."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import torch

from wenet_uio.search.prefix_scorer import PrefixScorer, join_scorers
from wenet_uio.search.types import Hypothesis, NBest

MODES = ("ctc_prefix_beam_search", "attention_rescoring")
"""Decode modes that begin with this search."""
_NOT_A_TOKEN = -1
_HASH_MULTIPLIER = -7046029254386353131
"""Multiplier of the 64-bit hash of prefixes: any odd number without a pattern."""


class _Frames(NamedTuple):
    """The K best labels of each frame.

    Frames after the end of an utterance allow the blank only, with log-probability 0.
    """

    tokens: torch.Tensor
    """(B, T, K)."""
    scores: torch.Tensor
    """(B, T, K) log-probabilities; -inf for the blank, which does not extend a prefix."""
    blank: torch.Tensor
    """(B, T) log-probability of the blank; -inf if the blank is not among the K best."""


class _Beam(NamedTuple):
    """N prefixes of each of B utterances, best first; unused ones score -inf."""

    ends_in_blank: torch.Tensor
    """(B, N) log-probability of all paths of the prefix that end in a blank."""
    ends_in_token: torch.Tensor
    """(B, N) log-probability of all paths of the prefix that end in its last token."""
    last: torch.Tensor
    """(B, N) last token, or -1."""
    name: torch.Tensor
    """(B, N) 64-bit hash of the prefix. Two prefixes of a beam collide about once in 10^17
    frames."""
    parent_name: torch.Tensor
    """(B, N) hash of the prefix without its last token."""
    bonus: torch.Tensor
    """(B, N) bonus that the scorers give."""
    states: torch.Tensor
    """(B, N, S) states of the scorers."""

    @property
    def score(self) -> torch.Tensor:
        return torch.logaddexp(self.ends_in_blank, self.ends_in_token)


class PrefixBeam:
    """The state of the search of B utterances: it advances by frames, and can be read at any time.

    As in WeNet, each frame first keeps its `beam_size` best labels, then extends every prefix by
    these labels and keeps the `beam_size` best prefixes. Scores are summed in float64.

    Source: Hannun et al. 2014, https://arxiv.org/abs/1408.2873.
    """

    def __init__(
        self,
        batch: int,
        beam_size: int,
        blank: int,
        scorers: Sequence[PrefixScorer],
        device: torch.device,
    ) -> None:
        """Start with empty prefixes.

        Args:
            batch: B.
            beam_size: N.
            scorers: their bonuses are added to the log-probabilities by which prefixes are
                compared.
        """
        self._blank = blank
        self._scorers = [scorer.begin() for scorer in scorers]
        state_size = sum(scorer.state_size for scorer in scorers)
        self._beam = _empty_beam(batch, beam_size, state_size, device)
        self._prefixes: list[list[tuple[int, ...]]] = [[()] * beam_size] * batch

    @property
    def kind(self) -> tuple[int, ...]:
        """What beams must have in common to advance together."""
        return (self._beam.last.size(1), self._blank, *map(id, self._scorers))

    def advance(self, log_probs: torch.Tensor, lengths: torch.Tensor | None = None) -> None:
        """Take the next frames.

        Args:
            log_probs: (B, T, V) CTC log-probabilities.
            lengths: (B,) frames; an utterance with less than T frames ends here. None: all have T.
        """
        num_prefixes = self._beam.last.size(1)
        num_labels = min(num_prefixes, log_probs.size(2))
        labels = _allowed_labels(log_probs, lengths, num_labels, self._blank)
        scorer = join_scorers(self._scorers)
        history = []
        for frame in range(log_probs.size(1)):
            self._beam, parent, token = _advance_beam(
                self._beam,
                labels.tokens[:, frame],
                labels.scores[:, frame],
                labels.blank[:, frame],
                scorer,
            )
            history.append((parent, token))

        if history:
            self._prefixes = _extend_prefixes(self._prefixes, history)

    def nbests(self) -> list[NBest]:
        """Read the hypotheses of each utterance: at most N, best first, scores with bonuses."""
        beam = self._beam
        totals = beam.score + beam.bonus
        scorer = join_scorers(self._scorers)
        if scorer is not None:
            totals += scorer.end(beam.states)

        scores, order = totals.sort(dim=1, descending=True, stable=True)
        nbests: list[NBest] = []
        for row, prefixes in enumerate(self._prefixes):
            nbest = []
            for number, score in zip(order[row].tolist(), scores[row].tolist(), strict=True):
                if score > -torch.inf:
                    nbest.append(Hypothesis(prefixes[number], score))
            nbests.append(nbest)

        return nbests

    @classmethod
    def advance_together(cls, beams: Sequence[PrefixBeam], log_probs: torch.Tensor) -> None:
        """Advance beams of one kind and of one utterance each by T frames; log_probs (B, T, V)."""
        if len(beams) == 1:
            beams[0].advance(log_probs)
            return

        joined = copy(beams[0])
        tensors_of_beams = zip(*[beam._beam for beam in beams], strict=True)
        joined._beam = _Beam._make([torch.cat(tensors) for tensors in tensors_of_beams])
        joined._prefixes = [beam._prefixes[0] for beam in beams]
        joined.advance(log_probs)

        for row, beam in enumerate(beams):
            beam._beam = _Beam._make([tensor[row : row + 1] for tensor in joined._beam])
            beam._prefixes = [joined._prefixes[row]]


def ctc_prefix_beam_search(
    log_probs: torch.Tensor,
    lengths: torch.Tensor,
    beam_size: int,
    blank: int = 0,
    scorers: Sequence[PrefixScorer] = (),
) -> list[NBest]:
    """Find the token sequences of whole utterances with the highest sum over their CTC paths.

    All utterances are searched together; Python loops only over frames.

    Args:
        log_probs: (B, T, V) CTC log-probabilities.
        lengths: (B,) frames.
        beam_size: N.
        scorers: their bonuses are added to the log-probabilities by which prefixes are compared.

    Returns:
        Per utterance at most N hypotheses, best first; their scores include the bonuses.
    """
    batch = log_probs.size(0)
    steps = int(lengths.max()) if batch else 0
    if steps == 0:
        return [[Hypothesis((), 0.0)] for _ in range(batch)]

    beam = PrefixBeam(batch, beam_size, blank, scorers, log_probs.device)
    beam.advance(log_probs[:, :steps], lengths)
    return beam.nbests()


def _allowed_labels(
    log_probs: torch.Tensor, lengths: torch.Tensor | None, count: int, blank: int
) -> _Frames:
    """Return the `count` best labels of each frame of log_probs (B, T, V). Frames behind the end of
    an utterance have a blank of probability 1, so that they change nothing.
    """
    scores, tokens = log_probs.topk(count, dim=-1)
    scores = scores.double()
    is_blank = tokens == blank

    if lengths is None:
        lengths = torch.full((len(tokens),), tokens.size(1), device=tokens.device)

    outside = torch.arange(tokens.size(1), device=tokens.device) >= lengths.unsqueeze(1)  # (B, T)
    blank_scores = scores.masked_fill(~is_blank, -torch.inf).amax(dim=-1)
    blank_scores = blank_scores.masked_fill(outside, 0.0)
    token_scores = scores.masked_fill(is_blank | outside.unsqueeze(-1), -torch.inf)
    return _Frames(tokens, token_scores, blank_scores)


def _empty_beam(batch: int, size: int, state_size: int, device: torch.device) -> _Beam:
    """Return beams that hold the empty prefix alone; their other places have the probability 0."""
    impossible = torch.full((batch, size), -torch.inf, dtype=torch.float64, device=device)
    ends_in_blank = impossible.clone()
    ends_in_blank[:, 0] = 0.0
    zeros = torch.zeros(batch, size, dtype=torch.int64, device=device)

    return _Beam(
        ends_in_blank,
        ends_in_token=impossible,
        last=zeros + _NOT_A_TOKEN,
        name=zeros + 1,
        parent_name=zeros,
        bonus=torch.zeros_like(impossible),
        states=torch.zeros(batch, size, state_size, dtype=torch.int64, device=device),
    )


def _advance_beam(
    beam: _Beam,
    tokens: torch.Tensor,
    scores: torch.Tensor,
    blank: torch.Tensor,
    scorer: PrefixScorer | None,
) -> tuple[_Beam, torch.Tensor, torch.Tensor]:
    """Advance the N prefixes of each utterance by one frame with K labels.

    Args:
        beam: the prefixes.
        tokens: (B, K) labels.
        scores: (B, K) their log-probabilities; -inf for the blank.
        blank: (B,) log-probability of the blank.
        scorer: hot words and a language model.

    Returns:
        The new beam. For each of its prefixes (B, N): the number of the prefix that it comes from,
        and the token that was appended, or -1.
    """
    num_prefixes, num_labels = beam.last.size(1), tokens.size(1)
    total = beam.score
    is_last = tokens.unsqueeze(1) == beam.last.unsqueeze(2)  # (B, N, K)
    repeats, label_of_last = is_last.max(dim=2)  # whether it is among the labels, and where; (B, N)

    # Extend prefix n by token k; a repeated token needs a blank in between.
    may_be_extended = torch.where(is_last, beam.ends_in_blank.unsqueeze(2), total.unsqueeze(2))
    extended = may_be_extended + scores.unsqueeze(1)  # (B, N, K)
    may_be_child = (total > -torch.inf) & repeats
    joined = _take_children(beam, extended, label_of_last, may_be_child)

    # A prefix stays as it is if the frame has a blank, or its last token again.
    repeated = scores.gather(1, label_of_last).masked_fill_(~repeats, -torch.inf)
    stays_in_blank = total + blank.unsqueeze(1)
    stays_in_token = torch.logaddexp(beam.ends_in_token + repeated, joined)

    staying = torch.logaddexp(stays_in_blank, stays_in_token)
    if scorer is None:
        bonus, states = beam.bonus, beam.states
        totals = torch.cat((staying, extended.flatten(1)), dim=1)
    else:
        staying += beam.bonus
        extended, bonus, states = _add_bonus(beam, tokens, staying, extended, scorer)
        totals = torch.cat((staying, extended.flatten(1) + bonus[:, num_prefixes:]), dim=1)

    # Keep the N best. Choices below N are prefixes that stay, the others are extensions.
    choice = totals.topk(num_prefixes, dim=1).indices
    stays = choice < num_prefixes
    extension = (choice - num_prefixes).clamp(min=0)
    parent = torch.where(stays, choice, extension // num_labels)
    token = tokens.gather(1, extension % num_labels).masked_fill_(stays, _NOT_A_TOKEN)
    name = beam.name.gather(1, parent)
    if scorer is not None:
        bonus = bonus.gather(1, choice)
        states = states.gather(1, choice.unsqueeze(2).expand(-1, -1, scorer.state_size))

    new_beam = _Beam(
        stays_in_blank.gather(1, parent).masked_fill_(~stays, -torch.inf),
        torch.cat((stays_in_token, extended.flatten(1)), dim=1).gather(1, choice),
        torch.where(stays, beam.last.gather(1, parent), token),
        torch.where(stays, name, name * _HASH_MULTIPLIER + token),
        torch.where(stays, beam.parent_name.gather(1, parent), name),
        bonus,
        states,
    )
    return new_beam, parent, token


def _take_children(
    beam: _Beam, extended: torch.Tensor, label_of_last: torch.Tensor, may_be_child: torch.Tensor
) -> torch.Tensor:
    """Take the extensions that equal a prefix of the beam out of `extended`, in place.

    Args:
        beam: N prefixes.
        extended: (B, N, K) scores of the extensions; those that are taken become -inf.
        label_of_last: (B, N) place of the last token of each prefix among the K labels.
        may_be_child: (B, N) whether a prefix can be the extension of another.

    Returns:
        (B, N) score of the extension that equals each prefix; -inf if there is none.
    """
    is_child = beam.parent_name.unsqueeze(1) == beam.name.unsqueeze(2)  # (B, N parents, N)
    is_child &= may_be_child.unsqueeze(1)
    joining = extended.gather(2, label_of_last.unsqueeze(1).expand_as(is_child))
    joining.masked_fill_(~is_child, -torch.inf)

    # A prefix has one parent at most, so that the maximum is its only value.
    joined, parent = joining.max(dim=1)  # (B, N)
    taken = parent * extended.size(2) + label_of_last
    removed = torch.full_like(joined, torch.inf).masked_fill_(joined > -torch.inf, -torch.inf)
    extended.flatten(1).scatter_reduce_(1, taken, removed, "amin")
    return joined


def _add_bonus(
    beam: _Beam,
    tokens: torch.Tensor,
    staying: torch.Tensor,
    extended: torch.Tensor,
    scorer: PrefixScorer,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Score the extensions of a frame by hot words and a language model.

    Args:
        beam: N prefixes.
        tokens: (B, K) labels of the frame.
        staying: (B, N) scores of the prefixes that stay as they are, with their bonus.
        extended: (B, N, K) scores of the extensions, without bonus.
        scorer: hot words and a language model.

    Returns:
        `extended` without hopeless extensions. Bonus (B, N + N * K) and states (B, N + N * K, S) of
        the prefixes that stay as they are and of the extensions.
    """
    # Skip extensions that stay below all N prefixes even with the largest bonus.
    if scorer.state_size:
        best_possible = extended + (beam.bonus + scorer.most).unsqueeze(2)
        is_hopeless = best_possible < staying.amin(dim=1)[:, None, None]
        extended = extended.masked_fill(is_hopeless, -torch.inf)

    states, gain = scorer.extend(beam.states, tokens, extended > -torch.inf)
    bonus = (beam.bonus.unsqueeze(2) + gain).flatten(1)
    return (
        extended,
        torch.cat((beam.bonus, bonus), dim=1),
        torch.cat((beam.states, states.flatten(1, 2)), dim=1),
    )


def _extend_prefixes(
    prefixes: list[list[tuple[int, ...]]], history: list[tuple[torch.Tensor, torch.Tensor]]
) -> list[list[tuple[int, ...]]]:
    """Extend each utterance's N prefixes by the frames in `history`.

    `history` has for each frame the back-pointers and the appended tokens, both (B, N).
    """
    _, last_tokens = history[-1]
    number = torch.arange(last_tokens.size(1), device=last_tokens.device).expand_as(last_tokens)

    # Follow each prefix back to the one that it was before these frames.
    backwards = []
    for parents, tokens in reversed(history):
        backwards.append(tokens.gather(1, number))
        number = parents.gather(1, number)

    emitted = torch.stack(backwards[::-1], dim=2).cpu().numpy()  # (B, N, T)
    extended: list[list[tuple[int, ...]]] = []
    for former, emitted_rows, origins in zip(prefixes, emitted, number.tolist(), strict=True):
        prefixes_of_utterance = []
        for labels, origin in zip(emitted_rows, origins, strict=True):
            new_tokens = labels[labels != _NOT_A_TOKEN].tolist()
            prefixes_of_utterance.append(former[origin] + tuple(new_tokens))
        extended.append(prefixes_of_utterance)

    return extended
