"""Operators on text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wenet_uio.config.dataset import FilterConf
from wenet_uio.dataset.measure import FILTER_FRAMES_PER_SECOND, token_filters
from wenet_uio.dataset.types import Example, SkipSample
from wenet_uio.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Tokenize:
    """Text to labels."""

    tokenizer: Tokenizer

    def __call__(self, example: Example) -> Example:
        tokens, labels = self.tokenizer.tokenize(example.text)
        return replace(example, tokens=tuple(tokens), labels=tuple(labels))


@dataclass(frozen=True)
class Filter:
    """Leave out samples whose number of tokens is out of bounds; lengths of audio are the plan's to filter."""

    conf: FilterConf

    def __call__(self, example: Example) -> Example:
        frames = example.waveform.numel() / example.sample_rate * FILTER_FRAMES_PER_SECOND
        for reason, is_out in token_filters(self.conf, len(example.labels), frames):
            if is_out:
                raise SkipSample(reason, f"{len(example.labels)} tokens, {frames:.0f} frames", filtered=True)
        return example
