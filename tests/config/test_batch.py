import pytest
from pydantic import ValidationError

from wenet_uio.config.batch import BatchConf


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bucket_boundaries": (500,)}, "needs 2 numbers for 1 bucket_boundaries, found 4"),
        ({"bucket_boundaries": (500, 500, 900)}, "bucket_boundaries must rise"),
        ({"bucket_duration_bins": (4.0,)}, "need one another"),
        ({"bucket_batch_size": (4,)}, "need one another"),
        (
            {"bucket_duration_bins": (4.0,), "bucket_batch_size": (1, 2, 3)},
            "3 numbers for 1 bucket_duration_bins",
        ),
        (
            {"bucket_duration_bins": ((4.0, 9),), "bucket_batch_size": (1, 2)},
            "2 numbers for 1 bucket_duration_bins",
        ),
        (
            {"bucket_duration_bins": (8.0, 4.0), "bucket_batch_size": (1, 2)},
            "bucket_duration_bins must rise",
        ),
        (
            {"bucket_duration_bins": (4.0,), "bucket_batch_size": (1,), "max_tps": (1, 2)},
            "2 numbers for 1 durations",
        ),
        ({"bucket_duration_bins": (), "bucket_batch_size": ()}, "bucket_duration_bins has no bin"),
        (
            {"bucket_duration_bins": (), "bucket_batch_size": (4,)},
            "bucket_duration_bins has no bin",
        ),
        ({"token_buckets": ((9, 8), (5, 9))}, "token_buckets must rise"),
        ({"token_buckets": ((5, 8),), "batch_tokens": 40}, "without batch_tokens"),
        ({"token_buckets": ()}, "token_buckets"),
        ({"quadratic_duration": 20}, "goes with batch_duration"),
        ({"quadratic_factor": 20}, "goes with batch_tokens"),
    ],
)
def test_inconsistent_keys_are_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        BatchConf(batch_type="bucket", **values)


def test_bins_of_duration_may_have_one_more_batch_size_for_longer_utterances():
    assert BatchConf(bucket_duration_bins=(4.0,), bucket_batch_size=(8, 2)).bucket_batch_size == (
        8,
        2,
    )
