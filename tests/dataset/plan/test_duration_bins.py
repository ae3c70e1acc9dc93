import numpy as np
import pytest

from wenet_uio.dataset.plan.duration_bins import duration_bins, token_bins

RANDOM = np.random.default_rng(0)
SECONDS = np.clip(RANDOM.lognormal(np.log(6), 0.6, 20000), 0.5, 30)
TOKENS = np.maximum(1, (SECONDS * RANDOM.normal(3, 0.5, 20000)).astype(int))


@pytest.mark.parametrize("count", [1, 2, 10, 30])
def test_bins_hold_equal_amounts_of_audio(count):
    ends = np.asarray(duration_bins(SECONDS, count))
    assert len(ends) == count
    assert ends[-1] == SECONDS.max()
    held = np.bincount(np.searchsorted(ends, SECONDS), weights=SECONDS)
    assert held.max() / held.min() < 1.02


def test_equal_lengths_make_fewer_bins():
    assert duration_bins(np.full(100, 2.0), 30) == (2.0,)


def test_token_bins_split_each_bin_of_duration_evenly():
    bins = token_bins(SECONDS, TOKENS, 5, 3)
    assert len(bins.ends) == 15
    assert [end for end, _ in bins.ends] == sorted(end for end, _ in bins.ends)
    ends = sorted({end for end, _ in bins.ends})
    inside = ends[0] >= SECONDS
    most = [tokens for end, tokens in bins.ends if end == ends[0]]
    held = np.bincount(
        np.searchsorted(most, TOKENS[inside & (most[-1] >= TOKENS)]),
        weights=TOKENS[inside & (most[-1] >= TOKENS)],
    )
    assert held.max() / held.min() < 1.6  # tokens are whole numbers


def test_outliers_of_tokens_per_second_do_not_stretch_their_bin():
    tokens = TOKENS.copy()
    tokens[:5] = 5000
    bins = token_bins(SECONDS, tokens, 5, 2)
    assert bins.outliers >= 5
    assert max(most for _, most in bins.ends) < 200
    assert max(bins.max_tps) < 10


def test_no_utterances_are_an_error():
    with pytest.raises(ValueError, match="0 utterances cannot be put into 3 bins"):
        duration_bins(np.empty(0), 3)
