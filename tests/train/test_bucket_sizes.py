from __future__ import annotations

import pytest
import yaml

from wenet_uio.config.batch import BatchConf
from wenet_uio.dataset.plan.duration_bins import Shape
from wenet_uio.dataset.plan.policies import ANY_TOKENS, DurationBucketPolicy
from wenet_uio.train.batch_size import (
    LargestBatch,
    batch_conf_yaml,
    largest_batches,
    leave_out_unfit,
)

POLICY = DurationBucketPolicy(
    ((1000, ANY_TOKENS), (2000, ANY_TOKENS), (4000, ANY_TOKENS)), (1, 1, 1)
)
SHAPES = [Shape(50, 100, 5), None, Shape(20, 400, 20)]


def fits(frames: int):
    return lambda shape, utterances: utterances if utterances * shape.frames <= frames else None


def test_an_empty_bucket_gets_the_batch_size_of_the_next_longer_bucket() -> None:
    found = largest_batches(POLICY, SHAPES, fits(4000), 10**9)
    assert found == [LargestBatch(40, 40), None, LargestBatch(10, 10)]
    text = batch_conf_yaml(POLICY, SHAPES, found)
    conf = yaml.safe_load(text)["batch_conf"]
    assert conf == {
        "batch_type": "bucket",
        "bucket_duration_bins": [1.0, 2.0, 4.0],
        "bucket_batch_size": [40, 10, 10],
    }
    assert text.endswith("{batch_type: dynamic, max_frames_in_batch: 4000}\n")


def test_batch_sizes_count_both_views_of_an_utterance() -> None:
    found = largest_batches(POLICY, SHAPES, fits(4000), 10**9)
    text = batch_conf_yaml(POLICY, SHAPES, found, views=2)
    assert yaml.safe_load(text)["batch_conf"]["bucket_batch_size"] == [80, 20, 20]
    assert text.endswith("{batch_type: dynamic, max_frames_in_batch: 8000}\n")


def test_a_bucket_without_a_batch_that_fits_is_an_error_with_its_size() -> None:
    with pytest.raises(
        ValueError,
        match=r"up to 4 s: not one utterance of 400 frames and 20 tokens trains in 1\.00 GB",
    ):
        largest_batches(POLICY, SHAPES, fits(300), 10**9)


BINS = DurationBucketPolicy(((1000, 5), (1000, 9), (2000, 9)), (1, 1, 1), max_tps=(9.0, 8.0, 7.0))


def test_bins_of_tokens_that_do_not_hold_the_longest_give_a_config_that_is_taken(capsys) -> None:
    unfit = Shape(7, 900, 30)
    shapes = leave_out_unfit(BINS, [Shape(50, 100, 5), None, Shape(20, 200, 9), unfit])
    assert len(shapes) == 3
    assert "7 utterances fit no bin, and training leaves them out" in capsys.readouterr().err
    text = batch_conf_yaml(BINS, shapes, largest_batches(BINS, shapes, fits(2000), 10**9))
    conf = BatchConf.model_validate(yaml.safe_load(text)["batch_conf"])
    assert conf.bucket_batch_size == (20, 10, 10)
    assert conf.max_tps == (9.0, 8.0, 7.0)


def test_bins_of_seconds_have_a_size_for_longer_utterances() -> None:
    shapes = leave_out_unfit(POLICY, [*SHAPES, Shape(7, 900, 30)])
    text = batch_conf_yaml(POLICY, shapes, largest_batches(POLICY, shapes, fits(4000), 10**9))
    assert len(BatchConf.model_validate(yaml.safe_load(text)["batch_conf"]).bucket_batch_size) == 4


def test_bins_of_tokens_that_hold_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="7 utterances fit no bin.*give bins that hold them"):
        leave_out_unfit(BINS, [None, None, None, Shape(7, 900, 30)])
