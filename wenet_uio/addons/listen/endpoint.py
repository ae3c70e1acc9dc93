"""Find the ends of utterances in a stream, from frames with and without speech.

The rules and their defaults are those of WeNet's runtime (ctc_endpoint.h). Frames may come from CTC
(`silent_by_blank`) or from a voice detector (`VoiceStream`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

BLANK_THRESHOLD = 0.8
"""A frame whose blank has a higher probability is silent."""


@dataclass(frozen=True)
class EndpointRule:
    """Conditions under which an utterance ends: all three must hold. Times are in seconds.

    Raises:
        ValueError: a time is negative, or both are 0, which every frame would meet.
    """

    needs_words: bool
    """Whether the utterance must have words."""
    silence: float
    """Shortest silence at the end."""
    length: float = 0.0
    """Shortest length of the utterance, including its silence."""

    def __post_init__(self) -> None:
        for name in ("silence", "length"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: expected 0 or more seconds, found {getattr(self, name)}")
        if not max(self.silence, self.length):
            raise ValueError("silence and length are both 0: every frame would end an utterance")


WENET_RULES: Mapping[str, EndpointRule] = {
    "rule1": EndpointRule(needs_words=False, silence=5.0),
    "rule2": EndpointRule(needs_words=True, silence=1.0),
    "rule3": EndpointRule(needs_words=False, silence=0.0, length=20.0),
}
"""rule1: long silence without a word; rule2: a pause after words; rule3: the utterance is too
long."""


class Endpointer:
    """Find the ends of the utterances of one stream.

    The next utterance begins with the chunk after the end.
    """

    def __init__(self, step: float, rules: Mapping[str, EndpointRule] = WENET_RULES) -> None:
        """Set the rules.

        Args:
            step: seconds of a frame.
            rules: by name; the first one that holds ends the utterance. Without rules, utterances
                do not end.

        Raises:
            ValueError: `step` is not above 0.
        """
        if not step > 0:
            raise ValueError(f"step: expected above 0 seconds, found {step}")

        # Count whole frames: a sum of steps would collect rounding errors.
        self._rules = [
            (
                name,
                rule.needs_words,
                _whole_frames(rule.silence, step),
                _whole_frames(rule.length, step),
            )
            for name, rule in rules.items()
        ]
        self._length = self._silence = 0

    def accept(self, silent: np.ndarray, has_words: bool) -> str | None:
        """Take the frames of a chunk, and apply the rules at its end.

        As in WeNet's runtime, a pause that is over before the end of the chunk ends nothing: the
        chunk already has the beginning of the next word.

        Args:
            silent: (frames,) whether each frame is without speech.
            has_words: whether the decoder has found words in the utterance.

        Returns:
            The name of the rule that ends the utterance after this chunk; None if it goes on.
        """
        for is_silent in silent:
            self._length += 1
            self._silence = self._silence + 1 if is_silent else 0

        rule = self._first_rule_met(has_words)
        if rule is not None:
            self._length = self._silence = 0

        return rule

    def _first_rule_met(self, has_words: bool) -> str | None:
        for name, needs_words, min_silence, min_length in self._rules:
            words_are_there = has_words or not needs_words
            if words_are_there and self._silence >= min_silence and self._length >= min_length:
                return name
        return None


def silent_by_blank(
    log_probs: np.ndarray, blank: int = 0, threshold: float = BLANK_THRESHOLD
) -> np.ndarray:
    """Find the silent frames (T,), by the probability of blank in CTC log-probabilities (T, V)."""
    return np.exp(log_probs[:, blank]) > threshold


def _whole_frames(seconds: float, step: float) -> int:
    # A time that is a whole number of frames up to rounding must not become one frame more.
    return int(np.ceil(seconds / step - 1e-6))
