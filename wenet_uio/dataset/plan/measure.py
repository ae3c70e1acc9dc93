"""Measure samples by the columns of an index: which of them the filters keep, and their lengths.

A position inside a pass is resumed only if the plan has the same digest. `identity` has the values
that decide the batches, under names of its own: classes and fields of the code may be renamed, and
yaml keys may get new homes, without an effect on runs that are not finished.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wenet_uio.audio.decoders import FRAME_RATE
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.columns import release_pages
from wenet_uio.dataset.corpus.index import NOMINAL_RATE, TEXT_ONLY, Rows, Stored
from wenet_uio.dataset.lengths import (
    FILTER_FRAMES_PER_SECOND,
    FrameCount,
    audio_token_filters,
    bounds_audio_tokens,
    frame_count,
    resampled_length,
    token_count_filters,
    token_rate_filters,
)
from wenet_uio.dataset.plan.entry_policy import EntryPolicy, entry_policy_of
from wenet_uio.dataset.plan.policies import (
    AudioTokens,
    DurationBucketPolicy,
    Lengths,
    Policy,
    StaticPolicy,
    TextBucketsPolicy,
    audio_tokens_of,
    policy_of,
)

SHARDS_AT_ONCE = 1 << 18
"""Shards whose rows of the shard table are processed together; this bounds the memory."""
SAMPLES_AT_ONCE = 1 << 17
"""Samples whose lengths are processed together; this bounds the memory."""
SAMPLED_SHARDS = 20
"""Number of shards, spread over the corpus, from which the lengths of its utterances are
estimated."""


@dataclass(frozen=True)
class Measure:
    """Which samples take part in an epoch, and the cost of each."""

    policy: Policy
    frame_count: FrameCount
    filter: FilterConf | None = None
    """None keeps every sample, as evaluation does."""
    entry_filters: tuple[FilterConf, ...] = ()
    """Filters of each entry of a mixture, instead of `filter`; empty if all entries share it."""
    speeds: tuple[float, ...] = (1.0,)
    """One speed is drawn for each sample in each epoch."""
    text_length_is_tokens: bool = False
    """True if the index counts tokens. Bounds on tokens are then checked while planning."""
    noise: float | None = None
    """Semi-sorted batching: width of the noise as a share of the range of lengths; None sorts
    without this noise."""
    length_order: str = "synced"
    """synced, random or rising."""
    length_jitter: float = 0.0
    """Mean number of batches that a sample of a small group moves in the order of length; 0 sorts
    exactly."""

    def identity(self) -> dict[str, Any]:
        """Return the values on which the batches depend; all of them are JSON."""
        return {
            "version": VERSION,
            "policy": self.policy.identity(),
            "frames": frames_identity(self.frame_count),
            "filters": None if self.filter is None else filters_identity(self.filter),
            "entry_filters": [filters_identity(conf) for conf in self.entry_filters],
            "speeds": list(self.speeds),
            "text_length_is_tokens": self.text_length_is_tokens,
            "noise": self.noise,
            "length_order": self.length_order,
            "length_jitter": self.length_jitter,
        }

    def digest(self) -> str:
        """Hash all values; a plan with another hash is not resumed."""
        return digest_of(self.identity())

    def of_entry(self, number: int) -> Measure:
        """Return the measure of entry `number` of a mixture, for a corpus of this entry alone."""
        measure = self
        if isinstance(self.policy, EntryPolicy):
            measure = replace(measure, policy=self.policy.policies[number])
        if self.entry_filters:
            measure = replace(measure, filter=self.entry_filters[number], entry_filters=())
        return measure

    @property
    def needs_entries(self) -> bool:
        """Whether `keep` and `lengths` need the entry of each sample."""
        return isinstance(self.policy, EntryPolicy) or bool(self.entry_filters)

    def keep(
        self, rows: Rows | Stored, entries: np.ndarray | None = None
    ) -> tuple[np.ndarray, Counter[str]]:
        """Tell whether each row takes part (bool), and the number of the other rows by reason.

        Args:
            rows: the samples.
            entries: entry of each sample in its mixture; only needed if `needs_entries`.
        """
        is_kept = np.ones(len(rows.num_samples), bool)
        reasons: Counter[str] = Counter()
        for reason, is_out in self._filters(rows, entries):
            reasons[reason] += int(np.count_nonzero(is_kept & is_out))
            is_kept &= ~is_out

        return is_kept, +reasons  # the plus drops reasons without a sample

    def lengths(
        self,
        rows: Rows | Stored,
        speeds: np.ndarray | float = 1.0,
        entries: np.ndarray | None = None,
    ) -> Lengths:
        """Return lengths of samples played at `speeds`.

        Args:
            rows: the samples.
            speeds: one for all, or (samples,).
            entries: entry of each sample in its mixture; only needed if `needs_entries`.
        """
        rate, text_only = self.frame_count.sample_rate, rows.sample_rate == TEXT_ONLY
        source_rate = np.where(text_only, rate, rows.sample_rate).astype(np.int64)
        resampled = resampled_length(rows.num_samples.astype(np.int64), source_rate, rate)
        played = np.ceil(resampled / speeds).astype(np.int64)

        tokens = rows.text_length.astype(np.int64)
        frames = np.where(text_only, tokens, self.frame_count(played))
        milliseconds = -(-played * 1000 // rate)

        # Stored features: their samples are frames, and no speed changes them.
        is_stored = rows.sample_rate == FRAME_RATE
        if is_stored.any():
            stored_milliseconds = rows.num_samples.astype(np.int64) * 1000 // FRAME_RATE
            frames = np.where(is_stored, rows.num_samples, frames)
            milliseconds = np.where(is_stored, stored_milliseconds, milliseconds)

        return Lengths(frames, milliseconds, tokens, text_only, entries)

    def shard_units(self, corpus: Corpus, part: slice = slice(None)) -> np.ndarray:
        """Return the summed units of each shard of a part of the corpus, after the filters;
        float64.

        They come from the shard table if the policy is linear in the length. The lengths of the
        samples of a shard are read only if the policy is not, or if the filters may leave out some
        of its samples.
        """
        stretch = float(np.mean(1 / np.asarray(self.speeds)))
        seconds = corpus.seconds[part] * stretch
        frames = seconds * self.frame_count.sample_rate / self.frame_count.shift
        units = self.policy.table_units(corpus.samples[part], seconds, frames)
        units = np.zeros(len(seconds)) if units is None else units.astype(np.float64)

        for shards, stored in self._lengths_needed(corpus, part):
            entries = self._entries_of_samples(corpus, shards)
            is_kept, _ = self.keep(stored, entries)
            units_of_samples = self.policy.units(self.lengths(stored, 1 / stretch, entries))

            # The sum of a shard is the difference of the running sums at its ends.
            running = np.cumsum(np.append(0, units_of_samples * is_kept))
            ends = np.cumsum(corpus.samples[shards], dtype=np.int64)
            sums = running[ends] - running[ends - corpus.samples[shards]]
            units[shards - (part.start or 0)] = sums

        return units

    def filtered(self, corpus: Corpus, first: int = 0, step: int = 1) -> Counter[str]:
        """Count the samples that the filters leave out, by reason.

        Only every `step`-th shard is counted, starting at `first`.

        The lengths of a shard are read only if its row of the shard table shows that the filters
        may apply.
        """
        reasons: Counter[str] = Counter()
        for start in range(first, corpus.num_shards, step * SHARDS_AT_ONCE):
            part = slice(start, start + step * SHARDS_AT_ONCE, step)
            for shards, stored in self._lengths_needed(corpus, part):
                _, left_out = self.keep(stored, self._entries_of_samples(corpus, shards))
                reasons += left_out
            release_pages(corpus.samples)

        return reasons

    def _entries_of_samples(self, corpus: Corpus, shards: np.ndarray) -> np.ndarray | None:
        """Return the entry of each sample of some shards; None if the policy is the same for all
        entries.
        """
        if not self.needs_entries:
            return None
        return np.repeat(corpus.shard_sources.entries(shards), corpus.samples[shards])

    def _lengths_needed(self, corpus: Corpus, part: slice) -> Iterator[tuple[np.ndarray, Stored]]:
        """Yield shards of a part whose lengths must be read, with the lengths, about
        SAMPLES_AT_ONCE samples at a time.
        """
        numbers_in_part = np.flatnonzero(self._must_read_lengths(corpus, part))
        if not len(numbers_in_part):
            return

        shards = (part.start or 0) + numbers_in_part * (part.step or 1)
        block_of_shard = np.cumsum(corpus.samples[shards], dtype=np.int64) // SAMPLES_AT_ONCE
        first_of_later_blocks = np.flatnonzero(np.diff(block_of_shard)) + 1
        for block in np.split(shards, first_of_later_blocks):
            yield block, corpus.lengths(block)
            release_pages(corpus.samples)

    def _must_read_lengths(self, corpus: Corpus, part: slice) -> np.ndarray:
        """Tell whether the lengths of the samples of each shard must be read to know its filtered
        samples and its units.

        Policies with `table_units` are monotone in length and text, and so are the filters. So it
        suffices to test the extremes: the shortest and the longest audio with the shortest and the
        longest text. The table does not tell stored features, whose frames are counted in another
        way, from audio.
        """
        nothing = np.zeros(0)
        is_linear = self.policy.table_units(nothing, nothing, nothing) is not None
        if self.entry_filters or "features" in corpus.kinds or not is_linear:
            return np.ones(len(range(*part.indices(corpus.num_shards))), bool)

        shortest, longest, shortest_text, longest_text = corpus.extremes(part)  # (shards,) each
        shortest = np.minimum(shortest, longest)  # infinite in a shard without samples
        text_only = longest == 0
        if not len(shortest):
            return text_only

        # Most often the extremes of the whole part show that no filter applies.
        may_filter = self._extremes_may_filter(
            shortest.min(keepdims=True),
            longest.max(keepdims=True),
            shortest_text.min(keepdims=True),
            longest_text.max(keepdims=True),
        )
        if may_filter[0]:
            may_filter = self._extremes_may_filter(shortest, longest, shortest_text, longest_text)
        return text_only | may_filter

    def _extremes_may_filter(
        self,
        shortest: np.ndarray,
        longest: np.ndarray,
        shortest_text: np.ndarray,
        longest_text: np.ndarray,
    ) -> np.ndarray:
        """Tell for each shard whether the filters leave out one of its extremes: seconds of audio,
        and characters or tokens of text.
        """
        rate = np.full(len(shortest), NOMINAL_RATE)
        fewest_samples = np.floor(shortest * NOMINAL_RATE).astype(np.int64)
        most_samples = np.ceil(longest * NOMINAL_RATE).astype(np.int64)

        may_filter = np.zeros(len(shortest), bool)
        for num_samples in (fewest_samples, most_samples):
            for text_length in (shortest_text, longest_text):
                is_kept, _ = self.keep(Stored(num_samples, rate, text_length))
                may_filter |= ~is_kept

        return may_filter

    def _filters(
        self, rows: Rows | Stored, entries: np.ndarray | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Return (reason, (rows,) whether this filter leaves each row out). A row counts for the
        first reason, so their order is part of the accounts.
        """
        if self.entry_filters and entries is not None:
            return self._filters_by_entry(rows, entries)
        if self.filter is not None:
            return self._filters_of_conf(self.filter, rows, entries)
        return iter(())

    def _filters_by_entry(
        self, rows: Rows | Stored, entries: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the filters of each entry, which leave out rows of this entry only."""
        for number, conf in enumerate(self.entry_filters):
            for reason, is_out in self._filters_of_conf(conf, rows, entries):
                yield reason, is_out & (entries == number)

    def _filters_of_conf(
        self, conf: FilterConf, rows: Rows | Stored, entries: np.ndarray | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (reason, (rows,) whether it leaves each row out) of one `filter_conf`.

        Bounds on length are those of the stored audio. A sample must have a frame, and fit into a
        batch, at every speed.
        """
        has_audio = rows.sample_rate != TEXT_ONLY
        seconds = rows.num_samples / np.maximum(rows.sample_rate, 1)
        frames = seconds * FILTER_FRAMES_PER_SECOND
        yield "max_length", frames > conf.max_length
        has_no_frame = self.lengths(rows, max(self.speeds)).frames < 1
        yield "min_length", ((frames < conf.min_length) | has_no_frame) & has_audio
        yield "min_duration", (seconds < conf.min_duration) & has_audio
        if conf.max_duration is not None:
            yield "max_duration", seconds > conf.max_duration

        if self.text_length_is_tokens:
            tokens = rows.text_length.astype(np.int64)
            yield from token_count_filters(conf, tokens, ~has_audio)
            for reason, is_out in token_rate_filters(conf, tokens, frames):
                yield reason, is_out & has_audio
            if conf.token_equivalent_duration is not None:
                count = AudioTokens(conf.token_equivalent_duration, conf.measure_total_length)
                measured = count(seconds, tokens, ~has_audio)
                for reason, is_out in audio_token_filters(conf, measured):
                    yield reason, is_out & has_audio

        most_units = self.policy.units(self.lengths(rows, min(self.speeds), entries))
        yield "fits_no_batch", most_units > self.policy.bound


def needs_token_counts(
    conf: DatasetConf,
    by_entry: Sequence[BatchConf] = (),
    entry_filters: Sequence[FilterConf] = (),
) -> bool:
    """Tell whether the batch policy or the filters need the number of tokens, which must then be
    counted before planning.

    Args:
        conf: filters and batches.
        by_entry: `batch_conf` of each entry of a mixture, instead of that of `conf`.
        entry_filters: `filter_conf` of each entry, likewise.
    """
    for filters in entry_filters or (conf.filter_conf,):
        bounds_token_rate = filters.max_tps is not None or filters.min_tps > 0
        if bounds_token_rate or bounds_audio_tokens(filters):
            return True

    return any(policy_of(batch).needs_tokens for batch in by_entry or (conf.batch_conf,))


def measure_of(
    conf: DatasetConf,
    *,
    training: bool,
    text_length_is_tokens: bool = False,
    by_entry: Sequence[BatchConf] = (),
    entry_filters: Sequence[FilterConf] = (),
) -> Measure:
    """Return the measure that `dataset_conf` describes.

    Evaluation has no filters, no speed perturbation and no jitter of lengths. Buckets of duration,
    which drop samples that fit no bucket, are replaced by their smallest batch size.

    Args:
        conf: filters, features and batches.
        training: False for evaluation.
        text_length_is_tokens: the index counts tokens, not characters.
        by_entry: `batch_conf` of each entry of a mixture, instead of that of `conf`; training only.
        entry_filters: `filter_conf` of each entry, likewise.
    """
    batch, views = conf.batch_conf, conf.views.number if training else 1
    audio_tokens = audio_tokens_of(batch, conf.filter_conf, training=training)
    policy = policy_of(batch, views, audio_tokens)
    if not training:
        if isinstance(policy, (DurationBucketPolicy, TextBucketsPolicy)):
            policy = StaticPolicy(min(policy.sizes))
        return Measure(policy, frame_count(conf))

    if by_entry:
        filters = entry_filters or [conf.filter_conf] * len(by_entry)
        policy = entry_policy_of(by_entry, views, filters)

    return Measure(
        policy,
        frame_count(conf, training=True),
        conf.filter_conf,
        tuple(entry_filters),
        speeds=conf.speed_perturb_conf.speeds if conf.speed_perturb else (1.0,),
        text_length_is_tokens=text_length_is_tokens,
        noise=batch.randomization_factor if batch.use_semi_sorted_batching else None,
        length_order=batch.length_order,
        length_jitter=batch.length_jitter,
    )


def utterance_seconds(corpus: Corpus) -> dict[str, float]:
    """Return seconds of the utterances: median, 95th percentile (`most`) and longest; zeros for a
    corpus of text only.

    They are estimated from SAMPLED_SHARDS shards.
    """
    seconds_of_shards = []
    for shard in np.unique(np.linspace(0, corpus.num_shards - 1, SAMPLED_SHARDS).astype(int)):
        rows = corpus.rows(int(shard))
        has_audio = rows.sample_rate != TEXT_ONLY
        seconds_of_shards.append(rows.seconds[has_audio])

    seconds = np.concatenate(seconds_of_shards)
    percentiles = np.percentile(seconds, (50, 95, 100)) if len(seconds) else np.zeros(3)
    median, most, longest = percentiles.round(2).tolist()
    return {"median": median, "most": most, "longest": longest}


VERSION = 1
"""Version of the dictionary. Raise it when the same values begin to mean other batches."""


def digest_of(identity: dict[str, Any]) -> str:
    """Hash an identity, whatever the order of its keys."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def frames_identity(count: FrameCount) -> dict[str, Any]:
    """State the values that decide how many frames a sample has."""
    return {
        "sample_rate": count.sample_rate,
        "window": count.window,
        "shift": count.shift,
        "snip_edges": count.snip_edges,
        "padding": count.padding,
        "fixed_samples": count.fixed_samples,
    }


def filters_identity(filters: FilterConf) -> dict[str, Any]:
    """State the values that decide which samples take part."""
    return {
        "max_length": filters.max_length,
        "min_length": filters.min_length,
        "token_max_length": filters.token_max_length,
        "token_min_length": filters.token_min_length,
        "min_output_input_ratio": filters.min_output_input_ratio,
        "max_output_input_ratio": filters.max_output_input_ratio,
        "min_duration": filters.min_duration,
        "max_duration": filters.max_duration,
        "min_tps": filters.min_tps,
        "max_tps": filters.max_tps,
        "min_tpt": filters.min_tpt,
        "max_tpt": filters.max_tpt,
        "min_tokens": filters.min_tokens,
        "max_tokens": filters.max_tokens,
        "token_equivalent_duration": filters.token_equivalent_duration,
        "measure_total_length": filters.measure_total_length,
    }
