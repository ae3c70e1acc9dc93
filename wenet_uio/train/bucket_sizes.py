"""The largest batch of each length bucket that trains, and the batch_conf with these batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import yaml
from tqdm import tqdm

from wenet_uio.base.messages import hides_bar, note
from wenet_uio.dataset.plan.policies import ANY_TOKENS, DurationBucketPolicy
from wenet_uio.dataset.plan.worst_shapes import Shape
from wenet_uio.train.batch_size import LargestBatch, Trial, largest_batch


def largest_batches(
    policy: DurationBucketPolicy, shapes: Sequence[Shape | None], trial: Trial, memory: int
) -> list[LargestBatch | None]:
    """Find and print the largest batch of each bucket, from the longest bucket to the shortest.

    Args:
        shapes: of each bucket; None for a bucket without utterances, whose result is None.
        memory: bytes that `trial` may take, for the error message.

    Raises:
        ValueError: a bucket does not train with a single utterance.
    """
    batches: list[LargestBatch | None] = [None] * len(shapes)
    start = 1
    titles = [f"up to {end / 1000:g} s" for end, _ in policy.ends] + ["longer"]

    for bucket in tqdm(
        reversed(range(len(shapes))), total=len(shapes), unit="bucket", disable=hides_bar()
    ):
        shape = shapes[bucket]
        if shape is None:
            continue

        largest = largest_batch(trial, shape, start)
        if largest is None:
            raise ValueError(
                f"{titles[bucket]}: not one utterance of {shape.frames} frames and {shape.tokens} "
                f"tokens trains in {memory / 1e9:.2f} GB; lower filter_conf.max_length, or use a "
                "smaller model"
            )

        batches[bucket] = largest
        start = largest.utterances  # a shorter bucket takes at least as many
        with tqdm.external_write_mode(sys.stderr):
            note(
                f"{titles[bucket]}: {start} utterances of {shape.frames} frames and {shape.tokens} "
                f"tokens, {largest.peak / 1e9:.2f} GB"
            )

    return batches


def without_unfit(
    policy: DurationBucketPolicy, shapes: Sequence[Shape | None]
) -> list[Shape | None]:
    """Return the shapes of the buckets. What fits no bucket of (seconds, tokens) is told, because
    training leaves it out: `bucket_batch_size` has no number for it.

    Raises:
        ValueError: no utterance fits a bucket.
    """
    count = len(policy.ends)
    unfit = shapes[count] if policy.in_two_dimensions and len(shapes) > count else None
    if unfit is None:
        return list(shapes)

    note = (
        f"{unfit.utterances} utterances fit no bin, and training leaves them out; they have up to "
        f"{unfit.frames} frames and {unfit.tokens} tokens"
    )
    if not any(shapes[:count]):
        raise ValueError(f"{note}; give bins that hold them: tools/estimate_duration_bins.py")

    tqdm.write(f"{note}; add a bin to keep them", file=sys.stderr)
    return list(shapes[:count])


def batch_conf_yaml(
    policy: DurationBucketPolicy,
    shapes: Sequence[Shape | None],
    batches: Sequence[LargestBatch | None],
    views: int = 1,
) -> str:
    """Format the batch_conf with these batches as yaml.

    A bucket without utterances gets the batch size of the next longer bucket.

    With two `views` of each utterance, batch sizes count the views.
    """
    batches = [batch and replace(batch, utterances=views * batch.utterances) for batch in batches]
    bins = [
        end / 1000 if tokens == ANY_TOKENS else [end / 1000, tokens] for end, tokens in policy.ends
    ]
    batch_conf = {
        "batch_type": "bucket",
        "bucket_duration_bins": bins,
        "bucket_batch_size": _sizes(batches),
    }
    if policy.lenient:
        batch_conf["bucket_choice"] = "lenient"
    if policy.max_tps:
        batch_conf["max_tps"] = list(policy.max_tps)

    # The bucket whose batch has the fewest frames decides.
    most_frames = min(
        batch.utterances * shape.frames
        for batch, shape in zip(batches, shapes, strict=True)
        if batch and shape
    )
    text = yaml.safe_dump({"batch_conf": batch_conf}, sort_keys=False, default_flow_style=None)
    return (
        f"{text}# or, to mix lengths in a batch: "
        f"{{batch_type: dynamic, max_frames_in_batch: {most_frames}}}\n"
    )


def _sizes(batches: Sequence[LargestBatch | None]) -> list[int]:
    """Return the batch size of each bucket; batches are ordered from the shortest utterances."""
    size = min(batch.utterances for batch in batches if batch)
    sizes: list[int] = []
    # From the longest utterances to the shortest: their batch size also fits an empty bucket of
    # shorter ones.
    for batch in reversed(batches):
        size = batch.utterances if batch else size
        sizes.insert(0, size)

    return sizes
