"""`batch_conf` of `dataset_conf`: how samples become batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from wenet_uio.config.base import AboveZero, Positive, Probability, Section, ZeroOrMore

Seconds = AboveZero


class BatchConf(Section):
    """How samples become batches; `batch_type` decides which of the keys apply."""

    batch_type: Literal["static", "dynamic", "bucket"] = "static"
    batch_size: Positive | None = None
    """static: utterances, texts without audio or conversations of a batch, 16 by default. dynamic
    with `batch_duration`, or with `batch_tokens` for audio: largest number of utterances."""
    max_frames_in_batch: Positive = 12000
    """dynamic: padded frames of a batch, which are its longest utterance times its number of
    utterances."""
    batch_duration: Seconds | None = None
    """dynamic: padded seconds of a batch, instead of max_frames_in_batch."""
    batch_target: AboveZero | None = None
    """dynamic: frames, or seconds with batch_duration, that batches are filled to, below the bound.
    An utterance between target and bound has a batch of its own. Above 262,144 utterances batches
    have the target on average."""
    quadratic_duration: Seconds | None = None
    """With batch_duration: an utterance of d seconds counts as d + d² / quadratic_duration, as
    attention costs."""
    bucket_boundaries: tuple[Positive, ...] = (500, 1000, 1500)
    """bucket: upper ends of the buckets in frames, exclusive. One more bucket holds longer
    utterances."""
    bucket_batch_sizes: tuple[Positive, ...] = (128, 64, 32, 16)
    """bucket: utterances of a batch, one number for each bucket of bucket_boundaries."""
    bucket_duration_bins: tuple[Seconds, ...] | tuple[tuple[Seconds, Positive], ...] | None = None
    """bucket: upper ends of the buckets in seconds or (seconds, tokens), inclusive, instead of
    bucket_boundaries."""
    bucket_batch_size: tuple[Positive, ...] | None = None
    """Utterances of a batch, one number for each bucket of bucket_duration_bins. Bins of seconds
    may have one more number for utterances longer than all bins."""
    max_tps: tuple[AboveZero, ...] | None = None
    """Largest tokens per second, one number for each bin, or for each duration of the bins;
    utterances above them are left out."""
    bucket_choice: Literal["strict", "lenient"] = "strict"
    """Buckets of (seconds, tokens): strict searches only the buckets of the smallest duration that
    fits, lenient takes the first bucket that fits both."""
    batch_tokens: Positive | None = None
    """Padded tokens of a batch of text without audio, or of conversations; required for them unless
    batch_type is static. With batch_type dynamic and filter_conf.token_equivalent_duration also of
    a batch of audio, instead of max_frames_in_batch and batch_duration."""
    quadratic_factor: Positive | None = None
    """With batch_tokens: a sample of n tokens counts as n + n² / quadratic_factor."""
    token_buckets: Annotated[tuple[tuple[Positive, Positive], ...], Field(min_length=1)] | None = (
        None
    )
    """bucket: (most tokens, texts of a batch) of each bucket of text without audio, or of
    conversations, instead of batch_tokens. Longer texts are left out."""
    use_semi_sorted_batching: bool = False
    """Sort all samples by length plus noise, instead of sorting random blocks by length. US patent
    11915685 B2 covers this method: check that you may use it before you switch it on."""
    randomization_factor: Probability = 0.1
    """Semi-sorted batching: width of the noise as a share of the range of lengths."""
    length_jitter: ZeroOrMore = 1.25
    """How far utterances move at random in the order of length before batches are cut, so that
    every epoch has other batches. Corpora of fewer than 1024 batches: the mean number of batches,
    but at most 1 % of all. Larger corpora: lengths change by up to 1 %, whatever the number. 0
    sorts exactly. More moves pad more."""
    length_order: Literal["synced", "random", "rising"] = "synced"
    """Order of batches by length over the epoch. synced: random, but similar for all ranks of a
    step. random: random in each lane. rising: from short to long."""

    @model_validator(mode="after")
    def _frame_buckets_fit(self) -> BatchConf:
        """Raise ValueError if buckets of frames and their batch sizes do not fit each other."""
        boundaries, sizes = self.bucket_boundaries, self.bucket_batch_sizes
        if len(sizes) != len(boundaries) + 1:
            raise ValueError(
                f"bucket_batch_sizes needs {len(boundaries) + 1} numbers for {len(boundaries)} "
                f"bucket_boundaries, found {len(sizes)}"
            )

        _require_rising("bucket_boundaries", boundaries)
        return self

    @model_validator(mode="after")
    def _duration_buckets_fit(self) -> BatchConf:
        """Raise ValueError if bins of duration and their batch sizes do not fit each other."""
        bins = self.bucket_duration_bins
        sizes = self.bucket_batch_size
        if (bins is None) != (sizes is None):
            raise ValueError("bucket_duration_bins and bucket_batch_size need one another")

        if bins == ():
            raise ValueError(
                "bucket_duration_bins has no bin: give one or more, or leave the key out"
            )

        if bins is None or sizes is None:
            return self

        # After the bins of seconds may come one without an end, which has a size too. Bins of
        # (seconds, tokens) are not followed by such a bin.
        has_token_bounds = isinstance(bins[0], tuple)
        has_last_bin = not has_token_bounds and len(sizes) == len(bins) + 1
        if len(sizes) != len(bins) and not has_last_bin:
            raise ValueError(
                f"bucket_batch_size has {len(sizes)} numbers for {len(bins)} bucket_duration_bins"
            )

        _require_rising("bucket_duration_bins", bins)
        return self

    @model_validator(mode="after")
    def _token_buckets_fit(self) -> BatchConf:
        """Raise ValueError if buckets of tokens are out of order, or meet another bound of texts."""
        if self.token_buckets is None:
            return self
        if self.batch_type != "bucket" or self.batch_tokens is not None:
            raise ValueError("token_buckets goes with batch_type: bucket, and without batch_tokens")

        _require_rising("token_buckets", tuple(tokens for tokens, _ in self.token_buckets))
        return self

    @model_validator(mode="after")
    def _max_tps_fits(self) -> BatchConf:
        """Raise ValueError if `max_tps` has neither a number for each duration nor for each bin."""
        ends = self.bucket_duration_bins or ()
        durations = {end[0] if isinstance(end, tuple) else end for end in ends}
        if self.max_tps is not None and len(self.max_tps) not in (len(durations), len(ends)):
            raise ValueError(
                f"max_tps has {len(self.max_tps)} numbers for {len(durations)} durations of the "
                "bins"
            )

        return self

    @model_validator(mode="after")
    def _target_is_below_the_bound(self) -> BatchConf:
        if self.batch_target is None:
            return self
        if self.batch_type != "dynamic" or self.batch_tokens is not None:
            raise ValueError("batch_target goes with batch_type: dynamic, and without batch_tokens")

        name = "max_frames_in_batch" if self.batch_duration is None else "batch_duration"
        bound = getattr(self, name)
        if self.batch_target > bound:
            raise ValueError(f"batch_target {self.batch_target:g} is above {name} {bound:g}")

        return self

    @model_validator(mode="after")
    def _quadratic_terms_have_a_bound(self) -> BatchConf:
        if self.batch_duration is None and self.quadratic_duration is not None:
            raise ValueError("quadratic_duration goes with batch_duration")
        if self.batch_tokens is None and self.quadratic_factor is not None:
            raise ValueError("quadratic_factor goes with batch_tokens")
        return self


def _require_rising(name: str, ends: tuple) -> None:
    if sorted(set(ends)) != list(ends):
        raise ValueError(f"{name} must rise, found {list(ends)}")
