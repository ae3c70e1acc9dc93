"""What a search is asked and what it gives."""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("attention", "attention_rescoring", "ctc_greedy_search", "ctc_prefix_beam_search")


@dataclass(frozen=True)
class Hypothesis:
    """One way to read an utterance."""

    tokens: tuple[int, ...]
    score: float
    """Log-probability under the rule of the search that made it."""
    frames: tuple[int, ...] | None = None
    """Encoder frame at which each token is most probable; None where token times were not asked for."""


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
    """Rescoring: weight of the CTC score beside that of the decoder."""
    reverse_weight: float | None = None
    """Rescoring: share of the right-to-left decoder in the decoder's score; None: the model's own."""
    blank_penalty: float = 0.0
    """Taken from the blank's logit: above 0 for fewer deletions."""
    length_penalty: float = 0.0
    """Attention search: hypotheses are compared by score / length ** length_penalty."""
    decoding_chunk_size: int = -1
    """Encoder frames a chunk: above 0 a fixed chunk, below 0 the whole context."""
    num_decoding_left_chunks: int = -1
    """Chunks to the left that are seen; below 0: all."""
    simulate_streaming: bool = False
    """Run the encoder chunk by chunk, as a live recogniser does."""
    token_times: bool = False
    """Find the frame of every token."""

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"beam_size: expected 1 or more, found {self.beam_size}")
        for name in ("ctc_weight", "reverse_weight"):
            weight = getattr(self, name)
            if weight is not None and not 0 <= weight <= 1:
                raise ValueError(f"{name}: expected 0 to 1, found {weight}")


def check_modes(modes: list[str] | tuple[str, ...]) -> None:
    """Raise a ValueError that names the known modes, unless every one of `modes` is among them."""
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise ValueError(f"unknown decode mode {', '.join(unknown) or '(none given)'}; known: {', '.join(MODES)}")
