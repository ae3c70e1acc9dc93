"""Forced alignment: times of tokens and words of a transcript, and how well it fits the audio; as
CTM, TextGrid, scores, and a data list without the poor utterances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch
from tqdm import tqdm

from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import hides_bar
from wenet_uio.base.uris import shown
from wenet_uio.dataset.formats.data_list import RawLine, parse_raw_line, with_distinct_keys
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import Batch, Skipped
from wenet_uio.models.speech_model import SpeechModel
from wenet_uio.search.ctc_path import align_tokens
from wenet_uio.search.recogniser import FrameClock
from wenet_uio.text.labels import Tokenizer


@dataclass(frozen=True)
class Interval:
    """A token or a word with its times in the utterance."""

    text: str
    start: float
    """Seconds."""
    end: float
    """Seconds."""
    confidence: float
    """CTC probability of a token in its most probable frame; for a word the geometric mean over its
    tokens."""


@dataclass(frozen=True)
class Alignment:
    """Times of a transcript. An interval spans the frames in which CTC emits the token or word."""

    tokens: tuple[Interval, ...]
    words: tuple[Interval, ...]
    score: float
    """(ln P(best path through the transcript) - ln P(best path of all)) / tokens. 0 if the
    recogniser hears the transcript; below 0 if it hears another text."""
    seconds: float
    """Length of the utterance."""


@dataclass
class Alignments:
    """Alignments of a data list."""

    by_key: dict[str, Alignment] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """{key: reason} of transcripts that are too long for their audio, so that no CTC path
    exists."""
    skipped: list[Skipped] = field(default_factory=list)
    """Utterances that could not be read."""

    def poor(self, min_score: float) -> dict[str, str]:
        """List {key: reason} of utterances to leave out.

        They did not align, score below `min_score`, or could not be read.
        """
        low = {
            key: f"score {alignment.score:.2f}"
            for key, alignment in self.by_key.items()
            if alignment.score < min_score
        }
        unread = {sample.key: f"{sample.reason}: {sample.detail}" for sample in self.skipped}
        return low | self.failed | unread


@torch.inference_mode()
def align_batches(
    model: SpeechModel,
    batches: Iterable[Batch],
    tokenizer: Tokenizer,
    clock: FrameClock,
    *,
    device: torch.device,
    utterances: int | None = None,
) -> Alignments:
    """Align the labels of every batch; `utterances` is their number, for the progress bar."""
    alignments = Alignments()
    model.to(device).eval()
    with tqdm(total=utterances, desc="aligning", unit="utt", disable=hides_bar()) as bar:
        for batch in batches:
            if len(batch):
                _align_batch(alignments, model, batch, tokenizer, clock, device)
            alignments.skipped.extend(batch.skipped)
            bar.update(len(batch) + len(batch.skipped))

    return alignments


def _align_batch(
    alignments: Alignments,
    model: SpeechModel,
    batch: Batch,
    tokenizer: Tokenizer,
    clock: FrameClock,
    device: torch.device,
) -> None:
    """Align the utterances of a batch, and add the results to `alignments`."""
    encoder_out, lengths = model.encode(batch.feats.to(device), batch.feats_lengths.to(device))
    log_probs = model.ctc_log_probs(encoder_out)

    for row, key in enumerate(batch.keys):
        labels = batch.target[row, : batch.target_lengths[row]].tolist()
        seconds = int(batch.feats_lengths[row]) * clock.shift
        utterance = log_probs[row, : lengths[row]]
        alignment = align_transcript(utterance, labels, tokenizer, clock, seconds, model.blank)

        if alignment is None:
            reason = f"{len(labels)} tokens do not fit {len(utterance)} encoder frames"
            alignments.failed[key] = reason
        else:
            alignments.by_key[key] = alignment


def align_transcript(
    log_probs: torch.Tensor,
    labels: list[int],
    tokenizer: Tokenizer,
    clock: FrameClock,
    seconds: float,
    blank: int,
) -> Alignment | None:
    """Align one transcript with CTC log_probs (T', V); None if no CTC path exists.

    Args:
        labels: token ids of the transcript.
        seconds: length of the utterance.
    """
    aligned = align_tokens(log_probs, labels, blank)
    if aligned is None:
        return None

    path, log_prob = aligned

    tokens = tuple(
        Interval(tokenizer.symbol(token), clock.edge(start), clock.edge(end), math.exp(score))
        for token, start, end, score in zip(
            path.tokens, path.starts, path.ends, path.scores, strict=True
        )
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

    best_log_prob = float(log_probs.max(dim=1).values.sum())
    score = (log_prob - best_log_prob) / max(1, len(labels))
    return Alignment(tokens, words, score, seconds)


def write_alignments(
    by_key: Mapping[str, Alignment], poor: Mapping[str, str], result_dir: str | Path
) -> None:
    """Write the files of an alignment to `result_dir`.

    words.ctm, tokens.ctm, scores (`key score` lines) and poor (`key reason` lines).
    """
    for tier in ("words", "tokens"):
        write_ctm(by_key, Path(result_dir, f"{tier}.ctm"), tier)

    with written_aside(Path(result_dir, "scores"), "w") as file:
        file.writelines(f"{key} {alignment.score:.4f}\n" for key, alignment in by_key.items())
    with written_aside(Path(result_dir, "poor"), "w") as file:
        file.writelines(shown(f"{key} {reason}\n") for key, reason in poor.items())


def write_textgrids(by_key: Mapping[str, Alignment], folder: str | Path) -> None:
    """Write a TextGrid for each utterance: `key.TextGrid`, with `_` in place of `/`."""
    for key, alignment in by_key.items():
        with written_aside(Path(folder, f"{key.replace('/', '_')}.TextGrid"), "w") as file:
            write_textgrid(alignment, file)


def write_ctm(alignments: Mapping[str, Alignment], path: str | Path, tier: str) -> None:
    """Write NIST's CTM, lines of `key 1 start duration text confidence`, of `words` or `tokens`."""
    with written_aside(path, "w") as file:
        for key, alignment in alignments.items():
            for interval in getattr(alignment, tier):
                times = f"{interval.start:.3f} {interval.end - interval.start:.3f}"
                file.write(f"{key} 1 {times} {interval.text} {interval.confidence:.3f}\n")


def write_textgrid(alignment: Alignment, file: IO[str]) -> None:
    """Write Praat's TextGrid in its long text format, with a tier of words and one of tokens."""
    end = max([alignment.seconds, *(token.end for token in alignment.tokens)])
    file.write('File type = "ooTextFile"\nObject class = "TextGrid"\n\n')
    file.write(f"xmin = 0\nxmax = {end:.3f}\ntiers? <exists>\nsize = 2\nitem []:\n")

    for number, tier in enumerate(("words", "tokens"), 1):
        intervals = _fill_gaps(getattr(alignment, tier), end)
        file.write(
            f'    item [{number}]:\n        class = "IntervalTier"\n        name = "{tier}"\n'
        )
        file.write(
            f"        xmin = 0\n        xmax = {end:.3f}\n        intervals: size = "
            f"{len(intervals)}\n"
        )

        for interval_number, (start, stop, text) in enumerate(intervals, 1):
            file.write(
                f"        intervals [{interval_number}]:\n            xmin = {start:.3f}\n            xmax = "
                f"{stop:.3f}\n"
            )
            file.write('            text = "{}"\n'.format(text.replace('"', '""')))


def _fill_gaps(intervals: Iterable[Interval], end: float) -> list[tuple[float, float, str]]:
    """List (start, end, text) of a tier; gaps become intervals without text, as Praat needs."""
    filled: list[tuple[float, float, str]] = []
    filled_until = 0.0
    for interval in intervals:
        if interval.start > filled_until:
            filled.append((filled_until, interval.start, ""))
        filled.append((interval.start, interval.end, interval.text))
        filled_until = interval.end

    if end > filled_until:
        filled.append((filled_until, end, ""))

    return filled


def write_clean_list(data_list: str | Path, path: str | Path, poor: Mapping[str, str]) -> int:
    """Write a raw list without the `poor` utterances and without unreadable lines.

    Returns:
        The number of lines kept.
    """
    lines: list[str] = []
    parsed: list[RawLine] = []

    with open(data_list, encoding="utf-8") as source:
        for line in source:
            try:
                parsed.append(parse_raw_line(line))
            except ListError:
                continue
            lines.append(line)

    kept = [
        line
        for line, utterance in zip(lines, with_distinct_keys(parsed), strict=True)
        if utterance.key not in poor
    ]
    with written_aside(path, "w") as file:
        file.writelines(line.rstrip("\n") + "\n" for line in kept)

    return len(kept)
