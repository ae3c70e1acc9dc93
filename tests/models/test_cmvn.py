"""CMVN statistics in JSON and in Kaldi format, and errors of invalid files."""

from __future__ import annotations

import json

import pytest
import torch

from wenet_uio.models.cmvn import load_cmvn

FEATS = torch.tensor([[1.0, 10.0], [3.0, 10.0], [5.0, 16.0]])
SUMS, SQUARES = FEATS.sum(0).tolist(), (FEATS**2).sum(0).tolist()


def test_normalised_features_have_zero_mean_and_unit_variance(tmp_path):
    path = tmp_path / "global_cmvn"
    path.write_text(json.dumps({"mean_stat": SUMS, "var_stat": SQUARES, "frame_num": 3}))
    normalised = load_cmvn(path, is_json=True, dim=2)(FEATS)
    torch.testing.assert_close(normalised.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(normalised.var(0, unbiased=False), torch.ones(2))


def test_kaldi_text_gives_the_same_normalisation_as_json(tmp_path):
    (tmp_path / "json").write_text(
        json.dumps({"mean_stat": SUMS, "var_stat": SQUARES, "frame_num": 3})
    )
    (tmp_path / "kaldi").write_text(f" [\n {SUMS[0]} {SUMS[1]} 3\n {SQUARES[0]} {SQUARES[1]} 0 ]\n")
    one, other = load_cmvn(tmp_path / "json", True, 2), load_cmvn(tmp_path / "kaldi", False, 2)
    torch.testing.assert_close(one(FEATS), other(FEATS))


def test_constant_bin_stays_finite(tmp_path):
    (tmp_path / "cmvn").write_text(
        json.dumps({"mean_stat": [2.0], "var_stat": [4.0], "frame_num": 1})
    )
    assert load_cmvn(tmp_path / "cmvn", True, 1)(torch.tensor([[2.0]])).item() == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "expected JSON"),
        (json.dumps({"mean_stat": [1.0], "var_stat": [1.0]}), "frame_num"),
        (
            json.dumps({"mean_stat": [1.0], "var_stat": [1.0], "frame_num": 0}),
            "found 0 frames, 1 sums, 1 sums of squares",
        ),
        (
            json.dumps({"mean_stat": [1.0], "var_stat": [], "frame_num": 5}),
            "1 sums, 0 sums of squares",
        ),
        (
            json.dumps({"mean_stat": [1.0], "var_stat": [1.0], "frame_num": 5}),
            "statistics of 1 bins, but the features have 2",
        ),
    ],
)
def test_errors_name_the_problem_of_a_file(tmp_path, text, message):
    (tmp_path / "cmvn").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_cmvn(tmp_path / "cmvn", True, 2)


def test_an_odd_number_of_values_in_kaldi_format_is_refused(tmp_path):
    (tmp_path / "cmvn").write_text("[ 1 2\n 3 ]")
    with pytest.raises(
        ValueError,
        match="expected a Kaldi text matrix .* even number of values, 4 or more; found 3",
    ):
        load_cmvn(tmp_path / "cmvn", False, 1)


@pytest.mark.parametrize("is_json", [True, False])
def test_statistics_are_read_for_a_model_without_weights(tmp_path, is_json):
    path = tmp_path / "cmvn"
    stats = {"mean_stat": [2.0, 4.0], "var_stat": [4.0, 20.0], "frame_num": 2}
    path.write_text(json.dumps(stats) if is_json else "[ 2 4 2\n 4 20 0 ]")
    expected = load_cmvn(path, is_json, 2).state_dict()
    with torch.device("meta"):
        for name, value in load_cmvn(path, is_json, 2).state_dict().items():
            assert value.shape == expected[name].shape
