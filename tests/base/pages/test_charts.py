"""Charts of pages: what is drawn is where the axes say, and nothing unreadable is written."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wenet_uio.base.pages.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    bar_chart,
    line_chart,
    round_step,
)

FINITE = st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-12)
NAMES = st.text(max_size=5).filter(lambda name: not re.search("nan|inf|None", name))
VALUES = st.one_of(FINITE, st.sampled_from([math.nan, math.inf, -math.inf]))


def numbers(pattern, chart):
    """The groups of all matches; a pattern has two groups or more."""
    return [tuple(map(float, found)) for found in re.findall(pattern, str(chart))]


@pytest.mark.all
@given(st.dictionaries(NAMES, st.lists(st.tuples(FINITE, VALUES), max_size=30)))
def test_any_lines_are_drawn_inside_the_axes_and_points_are_counted(lines):
    chart = str(line_chart("a title", "step", lines))
    assert not re.search(r"[\" >,](nan|-?inf|None)\b", chart.replace("not finite", ""))
    for x, y in numbers(r'<circle cx="([-\d.]+)" cy="([-\d.]+)"', chart):
        assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1
    finite = [point for points in lines.values() for point in points if math.isfinite(point[1])]
    assert chart.count("<circle") == len(finite)
    left_out = sum(map(len, lines.values())) - len(finite)
    assert sum(map(int, re.findall(r"\((\d+) points are not finite\)", chart))) == left_out
    ticks = re.findall('class="[xy]"', chart)
    assert len(ticks) <= 2 * 8 + 1


@given(st.floats(1e-12, 1e12))
def test_a_step_of_ticks_is_round_and_just_large_enough(least):
    step = round_step(least)
    digits = f"{step:e}".split("e")[0]
    assert float(digits) in (1, 2, 5)
    assert least * (1 - 1e-6) <= step <= least * 2.5 * (1 + 1e-6)


def test_ticks_are_where_their_values_are():
    chart = line_chart("", "step", {"loss": [(0, 1.0), (100, 3.0)]})
    places = {
        text: float(x) for x, text in re.findall(r'class="x" x="([\d.]+)" y="195">([\d.]+)<', chart)
    }
    assert places == {"0": LEFT, "20": 120.0, "40": 182.0, "60": 244.0, "80": 306.0, "100": 368.0}
    assert re.findall(r'cx="([\d.]+)"', chart) == [f"{LEFT:.1f}", f"{WIDTH - RIGHT:.1f}"]


@pytest.mark.parametrize(
    ("high", "label", "scale"),
    [(2e-5, "2", "× 10⁻⁵"), (3e8, "3", "× 10⁸"), (40_000, "40,000", None), (0.05, "0.05", None)],
)
def test_small_and_large_values_have_readable_ticks(high, label, scale):
    chart = str(line_chart("", "step", {"": [(0, 0.0), (1, high)]}))
    assert f">{label}</text>" in chart
    assert (scale is not None and f">{scale}</text>" in chart) or "×" not in chart


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40), st.booleans())
def test_bars_stand_on_the_axis_and_have_the_height_of_their_counts(counts, is_log):
    edges = [10.0**place if is_log else float(place) for place in range(len(counts) + 1)]
    chart = bar_chart("", "seconds", edges, counts, is_log=is_log)
    bars = numbers(r'<rect x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', chart)
    filled = [count for count in counts if count]
    assert len(bars) == len(filled)
    assert all(abs(y + height - (HEIGHT - BOTTOM)) < 0.2 for y, height in bars)
    if filled:
        highest = max(height for _, height in bars)
        for (_, height), count in zip(bars, filled, strict=True):
            assert height == pytest.approx(highest * count / max(filled), abs=0.2)
    assert ("No values." in str(chart)) == (not filled)


def test_names_of_lines_are_escaped_and_show_no_secrets():
    chart = str(line_chart("<b>", "<i>", {"<u>": [(0, 1)], "http://h/?sig=secret": [(0, 2)]}))
    assert not re.search("<[biu]>|secret", chart)
