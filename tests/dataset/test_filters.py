import numpy as np
import pytest

from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.lengths import token_count_filters, token_rate_filters


def left_out(filters):
    return {reason: np.flatnonzero(out).tolist() for reason, out in filters}


def test_bounds_on_the_number_of_tokens_are_inclusive():
    conf = FilterConf(token_min_length=2, token_max_length=5)
    found = left_out(token_count_filters(conf, np.arange(8), False))
    assert found == {"token_max_length": [6, 7], "token_min_length": [0, 1]}


def test_bounds_on_tokens_of_texts_never_leave_out_audio():
    conf = FilterConf(token_max_length=6, max_tokens=3, min_tokens=2)
    text_only = np.array([False, True] * 4)
    found = left_out(token_count_filters(conf, np.arange(8), text_only))
    assert found == {
        "max_tokens": [5, 7],
        "token_max_length": [],
        "min_tokens": [1],
        "token_min_length": [0],
    }


def test_rates_are_tokens_per_frame_of_10_ms_or_per_second():
    conf = FilterConf(
        min_output_input_ratio=0.02, max_output_input_ratio=0.2, min_tps=4, max_tps=12
    )
    tokens, frames = np.array([1, 3, 10, 15, 25]), np.full(5, 100.0)  # of one second
    found = left_out(token_rate_filters(conf, tokens, frames))
    assert found == {
        "min_output_input_ratio": [0],
        "max_output_input_ratio": [4],
        "min_tps": [0, 1],
        "max_tps": [3, 4],
    }


@pytest.mark.parametrize("frames", [0, 0.0, np.zeros(1)])
def test_audio_without_length_has_too_many_tokens_for_its_frames(frames):
    found = dict(token_rate_filters(FilterConf(), 1, frames))
    assert found["max_output_input_ratio"]
    assert "max_tps" not in found
