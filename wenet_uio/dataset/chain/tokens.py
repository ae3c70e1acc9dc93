"""Operators on text and labels: labels are made, and samples with too few or too many are left
out.

CTC needs a frame for each label, and one for the blank between two equal ones. Without a path its
loss is set to 0: such an utterance teaches nothing, and lowers the mean loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import numpy as np

from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.lengths import (
    FILTER_FRAMES_PER_SECOND,
    seconds_of,
    token_count_filters,
    token_rate_filters,
    token_ratio_filters,
)
from wenet_uio.dataset.types import Example, PairExample, SkipSample
from wenet_uio.text.aggregate import UnknownLanguageError
from wenet_uio.text.labels import AnyTokenizer


@dataclass(frozen=True)
class Tokenize:
    """Turn the text into labels; of a pair of texts, both."""

    tokenizer: AnyTokenizer
    training: bool = False
    """Draw the pieces of the text, if the tokenizer samples. The draws are those of the sample."""

    def __call__(self, example: Example) -> Example:
        """Add `tokens`, `labels` and `source_labels`.

        Raises:
            SkipSample: the tokenizer is an aggregate, and no language, or one without a tokenizer,
                is stated.
        """
        fields = example.extra
        random = None
        if self.training and self.tokenizer.samples:
            random = Random(f"pieces {example.random}")

        try:
            tokens, labels = self.tokenizer.of(fields).tokenize(example.text, random)
            if isinstance(example, PairExample):
                of_source = self.tokenizer.of(fields, "source").tokenize(example.source)[1]
                example = replace(example, source_labels=tuple(of_source))
        except UnknownLanguageError as error:
            raise SkipSample("unknown_language", str(error)) from None

        return replace(example, tokens=tuple(tokens), labels=tuple(labels))


@dataclass(frozen=True)
class Filter:
    """Leave out samples whose number of tokens is out of bounds. The plan filters by length of
    audio.
    """

    conf: FilterConf

    def __call__(self, example: Example) -> Example:
        """Return the example itself.

        Raises:
            SkipSample: the number of tokens is out of bounds.
        """
        source_labels = example.source_labels if isinstance(example, PairExample) else ()
        has_audio = example.waveform is not None or example.feats is not None
        count = len(source_labels)
        if not source_labels or self.conf.measure_total_length:
            count += len(example.labels)

        filters = token_count_filters(self.conf, count, not has_audio)
        detail = f"{count} tokens"
        if has_audio:
            frames = seconds_of(example) * FILTER_FRAMES_PER_SECOND
            filters += token_rate_filters(self.conf, count, frames)
            detail += f", {frames:.0f} frames"

        if source_labels:
            filters += token_ratio_filters(self.conf, len(example.labels), len(source_labels))
            detail += f", {len(source_labels)} of them in the first text"

        _skip_if(filters, detail)
        return example

    def check_conversation(self, of_assistant: int, of_others: int) -> None:
        """Check the number of tokens of a conversation.

        Args:
            of_assistant: tokens of the assistant's turns.
            of_others: tokens of all other turns, with those that their audio counts for.

        Raises:
            SkipSample: a number of tokens is out of bounds.
        """
        count = of_others + (of_assistant if self.conf.measure_total_length else 0)
        filters = token_count_filters(self.conf, count, text_only=True)
        detail = f"{count} tokens"
        if of_assistant and of_others:
            filters += token_ratio_filters(self.conf, of_assistant, of_others)
            detail += f", {of_assistant} of them by the assistant"

        _skip_if(filters, detail)


def _skip_if(filters: Sequence[tuple[str, np.ndarray]], detail: str) -> None:
    """Raise SkipSample if a filter applies."""
    for reason, is_out in filters:
        if is_out:
            raise SkipSample(reason, detail, filtered=True)


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
