"""`filter_conf`: which utterances take part in training."""

from __future__ import annotations

from pydantic import model_validator

from wenet_uio.config.base import AboveZero, NotNegative, Positive, Section, ZeroOrMore
from wenet_uio.config.batch import Seconds


class FilterConf(Section):
    """Bounds on the utterances of training.

    Lengths are those of the stored audio, before speed perturbation, so that every epoch uses the
    same utterances.
    """

    max_length: Positive = 10240
    """Frames of 10 ms."""
    min_length: NotNegative = 10
    """Frames of 10 ms."""
    token_max_length: Positive = 200
    token_min_length: NotNegative = 1
    min_output_input_ratio: float = 0.0005
    """Tokens per frame of 10 ms."""
    max_output_input_ratio: float = 1.0
    """Tokens per frame of 10 ms."""
    min_duration: ZeroOrMore = 0.0
    """Seconds."""
    max_duration: AboveZero | None = None
    """Seconds."""
    min_tps: ZeroOrMore = 0.0
    """Tokens per second."""
    max_tps: AboveZero | None = None
    """Tokens per second."""
    min_tpt: ZeroOrMore = 0.0
    """Pairs of texts: tokens of the second text per token of the first. Checked when a pair is
    read."""
    max_tpt: AboveZero | None = None
    """Pairs of texts: tokens of the second text per token of the first. Checked when a pair is
    read."""

    min_tokens: NotNegative | None = None
    """Texts without audio, pairs and conversations: fewest tokens, instead of token_min_length.
    Utterances, with token_equivalent_duration: fewest tokens of audio and text."""
    max_tokens: Positive | None = None
    """Texts without audio, pairs and conversations: most tokens, instead of token_max_length.
    Utterances, with token_equivalent_duration: most tokens of audio and text."""
    token_equivalent_duration: Seconds | None = None
    """Utterances are measured in tokens, too: so many seconds of audio count as one token, rounded
    up. min_tokens, max_tokens and, with batch_type dynamic, batch_tokens then bound audio. null:
    audio is measured in frames or seconds."""
    measure_total_length: bool = True
    """Pairs and conversations: the tokens of both texts, or of all turns, count for bounds and for
    batch_tokens. False: those of the input alone, the first text or the turns of all but the
    assistant. Utterances that are measured in tokens: those of audio and text; False: the audio
    alone."""

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> FilterConf:
        """Raise ValueError if a lower bound is above its upper bound."""
        for low, high in (
            ("min_length", "max_length"),
            ("token_min_length", "token_max_length"),
            ("min_output_input_ratio", "max_output_input_ratio"),
            ("min_duration", "max_duration"),
            ("min_tps", "max_tps"),
            ("min_tpt", "max_tpt"),
            ("min_tokens", "max_tokens"),
        ):
            lowest = getattr(self, low)
            highest = getattr(self, high)
            if lowest is not None and highest is not None and lowest > highest:
                raise ValueError(f"{low} {lowest} is above {high} {highest}: nothing would pass")
        return self
