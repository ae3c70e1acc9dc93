"""Leave out utterances whose labels do not fit into the positions of the decoder."""

from __future__ import annotations

from dataclasses import dataclass

from wenet_uio.dataset.types import Example, SkipSample

TOO_MANY_TOKENS = "too_many_tokens"
"""The reason for which such utterances are left out."""


@dataclass(frozen=True)
class RequirePositions:
    """The operator that leaves out utterances with more labels than a decoder has positions for."""

    most_labels: int
    """After the prompt, or sos."""

    def __call__(self, example: Example) -> Example:
        """Return the example itself.

        Raises:
            SkipSample: it has too many labels.
        """
        labels = len(example.labels)
        if labels > self.most_labels:
            detail = f"{labels} tokens, but the decoder has positions for {self.most_labels}"
            raise SkipSample(TOO_MANY_TOKENS, detail, filtered=True)
        return example
