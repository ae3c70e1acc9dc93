"""What a search is asked and what it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One way to read an utterance."""

    tokens: tuple[int, ...]
    score: float
    """Log-probability under the rule of the search that made it."""
    frames: tuple[int, ...] | None = None
    """Encoder frame at which CTC finds each token most probable, or at which the transducer gives it; None where not
    asked for, or on no CTC path."""
    confidences: tuple[float, ...] | None = None
    """Probability of each token at that frame."""

    @property
    def confidence(self) -> float | None:
        """Geometric mean of the tokens' confidences; None without them, or without tokens."""
        if not self.confidences:
            return None
        return math.exp(sum(math.log(max(value, 1e-30)) for value in self.confidences) / len(self.confidences))


NBest = list[Hypothesis]
"""Hypotheses of one utterance, best first; at least one, which may be empty."""


@dataclass(frozen=True)
class DecodeOptions:
    """Options of all searches.

    Raises:
        ValueError: for a beam below 1, or a weight that is not one.
    """

    beam_size: int = 10
    ctc_weight: float = 0.3
    """Rescoring and joint search: weight of the CTC score beside that of the decoder."""
    reverse_weight: float | None = None
    """Rescoring: share of the right-to-left decoder in the decoder's score; None: the model's own."""
    transducer_weight: float = 1.0
    """rnnt_beam_search: share of the transducer in the probability of each frame; CTC has the rest."""
    blank_penalty: float = 0.0
    """Taken from the blank's logit: above 0 for fewer deletions."""
    length_penalty: float = 0.0
    """Attention and joint search: hypotheses are compared by score / length ** length_penalty."""
    decoding_chunk_size: int = -1
    """Encoder frames a chunk: above 0 a fixed chunk, below 0 the whole context."""
    num_decoding_left_chunks: int = -1
    """Chunks to the left that are seen; below 0: all."""
    simulate_streaming: bool = False
    """Run the encoder chunk by chunk, as a live recogniser does."""
    token_times: bool = False
    """Find frame and confidence of every token."""
    nbest: int | None = None
    """Hypotheses to give of an utterance at most; None: all that the search has."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "nbest"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name}: expected 1 or more, found {count}")
        for name in ("ctc_weight", "reverse_weight"):
            weight = getattr(self, name)
            if weight is not None and not 0 <= weight <= 1:
                raise ValueError(f"{name}: expected 0 to 1, found {weight}")
        if not 0 < self.transducer_weight <= 1:
            raise ValueError(f"transducer_weight: expected above 0 and up to 1, found {self.transducer_weight}")
