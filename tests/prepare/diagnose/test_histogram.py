import numpy as np
import pytest

from wenet_uio.prepare.diagnose.findings import LogHistogram


def histogram(values):
    made = LogHistogram()
    made.add(np.asarray(values, np.float64))
    return made


def test_quantiles_are_exact_to_one_bin():
    values = np.random.default_rng(0).lognormal(0, 1, 10_000)
    found = histogram(values)
    for share in (0.01, 0.25, 0.5, 0.75, 0.99):
        assert found.quantile(share) == pytest.approx(np.quantile(values, share), rel=0.012)


def test_the_quantiles_0_and_1_are_the_smallest_and_the_largest_value():
    found = histogram([0.3, 2.0, 7.0])
    assert [found.quantile(0), found.quantile(1)] == pytest.approx([0.3, 7.0], rel=0.012)


def test_merged_histograms_count_the_values_of_both():
    merged = histogram([0.1, 2.0])
    merged.merge(histogram([30.0]))
    np.testing.assert_array_equal(merged.counts, histogram([0.1, 2.0, 30.0]).counts)


def test_values_beyond_the_scale_fall_into_the_outer_bins():
    counts = histogram([0.0, -1.0, 1e-9, 1e9]).counts
    assert (counts[0], counts[-1], counts.sum()) == (3, 1, 4)


def test_a_histogram_without_values_has_no_quantiles():
    assert np.isnan(LogHistogram().quantile(0.5))
    assert LogHistogram().summary() == {}


def test_the_summary_has_three_digits():
    assert histogram([1.2345] * 10).summary()["0.5"] == pytest.approx(1.23, abs=0.011)
