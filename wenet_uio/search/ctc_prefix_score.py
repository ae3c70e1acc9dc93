"""CTC scores of the hypotheses of an attention beam search, token by token."""

from __future__ import annotations

import torch

_IMPOSSIBLE = -1e4
"""Log-probability in place of -inf, which would give NaN in differences of cumulative sums."""


class CtcPrefixScore:
    """Score N growing hypotheses of each of B utterances by CTC.

    The score is ln P(all token sequences that begin with the hypothesis).

    The forward variables of a longer prefix are recurrences in time of the form r[t] = (r[t-1] +
    a[t]) p[t]. Divided by the product of p they are cumulative sums. So all frames are computed at
    once, in float64.

    Source: Watanabe et al. 2017, https://doi.org/10.1109/JSTSP.2017.2763455, algorithm 2.
    """

    def __init__(
        self, log_probs: torch.Tensor, lengths: torch.Tensor, weight: float, blank: int, eos: int
    ) -> None:
        """Start with the empty hypothesis.

        Args:
            log_probs: (B, T, V) CTC log-probabilities.
            lengths: (B,) frames.
            weight: weight of CTC; the decoder has the rest.
        """
        self._blank, self._eos, self._weight = blank, eos, weight
        self._log_probs = log_probs
        frame = torch.arange(log_probs.size(1), device=log_probs.device)
        self._outside = frame >= lengths.unsqueeze(1)  # (B, T)

        blank_tokens = torch.full_like(lengths, blank).view(-1, 1, 1)
        self._blanks = self._frame_scores(blank_tokens)  # (B, 1, 1, T)
        blanks = self._blanks.squeeze(1)  # (B, 1, T)
        self._prefix = torch.zeros_like(blanks[..., 0])
        """(B, N) score of each hypothesis."""
        self._in_blank = blanks.cumsum(dim=2)
        """(B, N, T) score of the paths up to each frame that end in a blank."""
        self._in_token = torch.full_like(blanks, -torch.inf)
        """(B, N, T) score of the paths up to each frame that end in the last token."""
        self._start = 0.0
        """ln P of the hypotheses before the first frame: 0 for the empty hypothesis, then -inf."""

    def combine(
        self, best: torch.Tensor, candidates: torch.Tensor, last: torch.Tensor
    ) -> torch.Tensor:
        """Combine the scores of CTC and decoder for the next token.

        Args:
            best: (B, N, M) log-probabilities of the decoder.
            candidates: (B, N, M) their tokens.
            last: (B, N) last token of each hypothesis.

        Returns:
            (B, N, M) by how much the joint score changes with each candidate.
        """
        # Paths before each frame, (B, N, 1, T). A repeated token needs a blank in between.
        start = self._in_blank.new_full((*self._prefix.shape, 1), self._start)
        in_any = torch.logaddexp(self._in_blank, self._in_token)
        blank_before = torch.cat((start, self._in_blank[..., :-1]), dim=2).unsqueeze(2)
        any_before = torch.cat((start, in_any[..., :-1]), dim=2).unsqueeze(2)
        repeats = (candidates == last.unsqueeze(2)).unsqueeze(3)
        entering = torch.where(repeats, blank_before, any_before)  # (B, N, M, T)

        scores = self._frame_scores(candidates)  # (B, N, M, T)
        prefix = (entering + scores).logsumexp(dim=3)
        self._new_in_token = _run_recursion(entering, scores)
        after_token = torch.nn.functional.pad(
            self._new_in_token[..., :-1], (1, 0), value=-torch.inf
        )
        self._new_in_blank = _run_recursion(after_token, self._blanks)

        # A hypothesis that ends is scored by the paths of itself alone, up to the last frame.
        prefix = torch.where(candidates == self._eos, in_any[..., -1:], prefix)
        self._new_prefix = prefix.masked_fill(candidates == self._blank, -torch.inf)
        former_prefix = self._prefix.unsqueeze(2)
        gain = torch.where(former_prefix > -torch.inf, self._new_prefix - former_prefix, -torch.inf)

        return (1.0 - self._weight) * best + self._weight * gain.to(best.dtype)

    def choose(self, choice: torch.Tensor) -> None:
        """Extend the hypotheses by the chosen candidates of the last `combine`.

        Args:
            choice: (B, K) numbers of candidates, n * M + m.
        """
        self._prefix = self._new_prefix.flatten(1).gather(1, choice)
        rows = choice.unsqueeze(2).expand(-1, -1, self._outside.size(1))
        self._in_blank = self._new_in_blank.flatten(1, 2).gather(1, rows)
        self._in_token = self._new_in_token.flatten(1, 2).gather(1, rows)
        self._start = -torch.inf

    def _frame_scores(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of tokens (B, N, M) in each frame, (B, N, M, T) in float64.

        Only these are converted: all scores of 50,000 tokens are gigabytes.
        """
        rows = torch.arange(len(tokens), device=tokens.device).view(-1, 1, 1)
        scores = self._log_probs[rows, :, tokens].double().clamp(min=_IMPOSSIBLE)
        # After the end only blanks, at no cost
        after_end = torch.where(tokens == self._blank, 0.0, _IMPOSSIBLE).to(scores.dtype)
        return torch.where(self._outside[:, None, None], after_end.unsqueeze(3), scores)


def _run_recursion(entering: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Compute r[t] = logaddexp(r[t-1], entering[t]) + scores[t] along the last axis, r[-1] = -inf."""
    products = scores.cumsum(dim=-1)
    return products + (entering - (products - scores)).logcumsumexp(dim=-1)
