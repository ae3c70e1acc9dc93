"""Leave out utterances that a model cannot learn: their labels do not fit into the frames of CTC, or
into the positions of the decoder.

CTC needs a frame for each label, and one for the blank between two equal ones. Without a path its
loss is set to 0: such an utterance teaches nothing, and lowers the mean loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wenet_uio.dataset.types import Example, SkipSample

NO_CTC_PATH = "no_ctc_path"
"""The reason for which such utterances are left out."""


@dataclass(frozen=True)
class CtcFrames:
    """Frames that the CTC layer of a model has for an utterance."""

    by_num_feats: np.ndarray
    """int; the frames of CTC for 0, 1, 2, … feature frames, without padding."""

    def obstacle(self, labels: Sequence[int], num_feats: int) -> str | None:
        """Say why CTC has no path through labels; None if it has one.

        An utterance that is longer than the table `by_num_feats` is taken to have one.

        Args:
            num_feats: feature frames of the utterance.
        """
        if num_feats >= len(self.by_num_feats):
            return None
        frames, needed = int(self.by_num_feats[num_feats]), frames_needed(labels)
        if needed <= frames:
            return None
        return f"{len(labels)} labels need {needed} frames of CTC, the audio has {frames}"


@dataclass(frozen=True)
class RequireCtcPath:
    """The operator that leaves out utterances without a path of CTC."""

    frames: CtcFrames

    def __call__(self, example: Example) -> Example:
        """Return the example itself.

        Raises:
            SkipSample: CTC has no path through its labels.
        """
        if example.deferred is not None:
            num_feats = example.deferred.frames
        elif example.feats is not None:
            num_feats = len(example.feats)
        else:
            return example

        obstacle = self.frames.obstacle(example.labels, num_feats)
        if obstacle is not None:
            raise SkipSample(NO_CTC_PATH, obstacle, filtered=True)
        return example


def frames_needed(labels: Sequence[int]) -> int:
    """Return the length of the shortest path of CTC through labels."""
    return len(labels) + sum(one == other for one, other in pairwise(labels))


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
