import numpy as np
import pytest

from wenet_uio.prepare.diagnose.check import usual_range
from wenet_uio.prepare.diagnose.findings import LogHistogram


def test_outliers_lie_three_quartile_ranges_beyond_the_quartiles():
    values = LogHistogram()
    # Quartiles at half a power of ten on both sides of 1: a range of one power
    values.add(np.logspace(-1, 1, 1001))
    low, high = usual_range(values)
    assert np.log10([low, high]) == pytest.approx([-3.5, 3.5], abs=0.01)


@pytest.mark.parametrize(("count", "limits"), [(19, (-np.inf, np.inf)), (20, (0.5, 2.0))])
def test_among_equal_values_outliers_are_half_or_twice_as_large(count, limits):
    values = LogHistogram()
    values.add(np.ones(count))
    assert tuple(usual_range(values)) == pytest.approx(limits, rel=0.02)
