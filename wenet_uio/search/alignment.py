"""Forced alignment: when each token and word of a transcript is said, and how well it fits the audio."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch
from tqdm import tqdm

from wenet_uio.dataset.formats.data_list import ListError, parse_raw_line
from wenet_uio.dataset.types import Batch, Skipped
from wenet_uio.files import written_aside
from wenet_uio.models import ASRModel
from wenet_uio.search.ctc_path import align_tokens
from wenet_uio.search.timing import FrameClock
from wenet_uio.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Interval:
    """A token or a word on the clock of its utterance."""

    text: str
    start: float
    """Seconds."""
    end: float
    """Seconds."""
    confidence: float
    """CTC's probability of the token at its peak; of a word, the geometric mean of its tokens'."""


@dataclass(frozen=True)
class Alignment:
    """A transcript on the clock of its utterance. An interval holds the frames in which CTC emits it."""

    tokens: tuple[Interval, ...]
    words: tuple[Interval, ...]
    score: float
    """ln P(best path through the transcript) - ln P(best path of all), per token: 0 where the recogniser hears the
    transcript, below where it hears something else."""
    seconds: float
    """Of the utterance."""


@dataclass
class Alignments:
    """Alignments of a data list."""

    by_key: dict[str, Alignment] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """{key: reason} of transcripts that no CTC path has."""
    skipped: list[Skipped] = field(default_factory=list)
    """Utterances that could not be read."""

    def poor(self, min_score: float) -> dict[str, str]:
        """{key: reason} of utterances that did not align, or score below `min_score`, or could not be read."""
        poor = {key: f"score {each.score:.2f}" for key, each in self.by_key.items() if each.score < min_score}
        return poor | self.failed | {sample.key: f"{sample.reason}: {sample.detail}" for sample in self.skipped}


@torch.inference_mode()
def align_batches(
    model: ASRModel,
    batches: Iterable[Batch],
    tokenizer: Tokenizer,
    clock: FrameClock,
    *,
    device: torch.device,
    utterances: int | None = None,
) -> Alignments:
    """Align the labels of every batch; `utterances`: how many there are, for the progress bar."""
    alignments = Alignments()
    model.to(device).eval()
    with tqdm(total=utterances, desc="aligning", unit="utt", disable=None) as bar:
        for batch in batches:
            if len(batch):
                feats, lengths = batch.feats.to(device), batch.feats_lengths.to(device)
                encoder_out, lengths = model.encode(feats, lengths)
                log_probs = model.ctc_log_probs(encoder_out)
                for row, key in enumerate(batch.keys):
                    labels = batch.target[row, : batch.target_lengths[row]].tolist()
                    seconds = int(batch.feats_lengths[row]) * clock.shift
                    found = align(log_probs[row, : lengths[row]], labels, tokenizer, clock, seconds, model.blank)
                    if found is None:
                        alignments.failed[key] = f"{len(labels)} tokens do not fit {int(lengths[row])} encoder frames"
                    else:
                        alignments.by_key[key] = found
            alignments.skipped.extend(batch.skipped)
            bar.update(len(batch) + len(batch.skipped))
    return alignments


def align(
    log_probs: torch.Tensor, labels: list[int], tokenizer: Tokenizer, clock: FrameClock, seconds: float, blank: int
) -> Alignment | None:
    """Align one transcript with log_probs (T', V); None where no CTC path has it."""
    aligned = align_tokens(log_probs, labels, blank)
    if aligned is None:
        return None
    path, log_prob = aligned
    tokens = tuple(
        Interval(tokenizer.symbol(token), clock.edge(start), clock.edge(end), math.exp(score))
        for token, start, end, score in zip(path.tokens, path.starts, path.ends, path.scores, strict=True)
    )
    words = tuple(
        Interval(
            word,
            tokens[first].start,
            tokens[last - 1].end,
            math.exp(sum(path.scores[first:last]) / (last - first)),
        )
        for word, first, last in tokenizer.words(labels)
    )
    best = float(log_probs.max(dim=1).values.sum())
    return Alignment(tokens, words, (log_prob - best) / max(1, len(labels)), seconds)


def write_ctm(alignments: Mapping[str, Alignment], path: str | Path, tier: str) -> None:
    """Write `key 1 start duration text confidence` lines (NIST's CTM) of the tier `words` or `tokens`."""
    with written_aside(path, "w") as file:
        for key, alignment in alignments.items():
            for each in getattr(alignment, tier):
                length = each.end - each.start
                file.write(f"{key} 1 {each.start:.3f} {length:.3f} {each.text} {each.confidence:.3f}\n")


def write_textgrid(alignment: Alignment, file: IO[str]) -> None:
    """Write Praat's TextGrid (its long text format) with a tier of words and one of tokens."""
    end = max([alignment.seconds, *(each.end for each in alignment.tokens)])
    file.write('File type = "ooTextFile"\nObject class = "TextGrid"\n\n')
    file.write(f"xmin = 0\nxmax = {end:.3f}\ntiers? <exists>\nsize = 2\nitem []:\n")
    for number, tier in enumerate(("words", "tokens"), 1):
        intervals = _without_gaps(getattr(alignment, tier), end)
        file.write(f'    item [{number}]:\n        class = "IntervalTier"\n        name = "{tier}"\n')
        file.write(f"        xmin = 0\n        xmax = {end:.3f}\n        intervals: size = {len(intervals)}\n")
        for place, (start, stop, text) in enumerate(intervals, 1):
            file.write(f"        intervals [{place}]:\n            xmin = {start:.3f}\n            xmax = {stop:.3f}\n")
            file.write('            text = "{}"\n'.format(text.replace('"', '""')))


def _without_gaps(intervals: Iterable[Interval], end: float) -> list[tuple[float, float, str]]:
    """(start, end, text) with empty texts between the intervals, as a tier must have."""
    filled: list[tuple[float, float, str]] = []
    place = 0.0
    for each in intervals:
        if each.start > place:
            filled.append((place, each.start, ""))
        filled.append((each.start, each.end, each.text))
        place = each.end
    if end > place:
        filled.append((place, end, ""))
    return filled


def write_clean_list(data_list: str | Path, path: str | Path, poor: Mapping[str, str]) -> int:
    """Write a raw list without the utterances `poor`; returns how many lines stay. Lines that cannot be read go too."""
    kept = 0
    with open(data_list, encoding="utf-8") as source, written_aside(path, "w") as file:
        for line in source:
            try:
                key = parse_raw_line(line).key
            except ListError:
                continue
            if key not in poor:
                file.write(line.rstrip("\n") + "\n")
                kept += 1
    return kept
