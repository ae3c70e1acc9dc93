"""Charts of pages as SVG, which takes its colours and fonts from the page, in light and dark.

The templates place them as they are: all text in them is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from wenet_uio.base.uris import shown

WIDTH, HEIGHT = 400, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 32, 10, 42
"""Margins around the area of the values. Half of a tick such as 1,000,000 fits in the right one."""
COLOURS = 6
"""Colours of lines in report.css; further lines begin anew."""
DOTTED = 40
"""Lines of up to this many points show each point."""

ROUNDING = 1e-9
"""Numbers that differ by less are one tick: 0.3 / 0.1 is a little below 3."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """One axis: values between `low` and `high` are `length` pixels long, from `start` on."""

    low: float
    high: float
    start: float
    length: float
    is_log: bool = False
    is_whole: bool = False
    """All values are whole numbers."""

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + self.length * (value - low) / (high - low)

    def step(self) -> float:
        """Return the distance of ticks: 3 to 7 fit in the axis."""
        least = (self.high - self.low) / 5
        if self.is_whole:
            least = max(least, 1)
        return round_step(least)

    def ticks(self) -> list[float]:
        """Return round values within the axis: 3 to 7, or the powers of ten between its ends."""
        if self.is_log and self.high / self.low >= 100:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            every = 1 + (last - first) // 6  # so that there are 7 ticks at most
            return [10.0**power for power in range(first, last + 1, every)]

        step = self.step()
        first = math.ceil(self.low / step - ROUNDING)
        last = math.floor(self.high / step + ROUNDING)
        return [number * step for number in range(first, last + 1)]


def round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below a number."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - ROUNDING))


def line_chart(title: str, along: str, lines: Mapping[str, Points]) -> Markup:
    """Draw lines through points (x, y), with a legend if there are several lines.

    Points that are not finite are left out; the legend counts them.

    Args:
        along: what the horizontal axis counts, with its unit.
        lines: points of each line by its name.
    """
    finite_lines: dict[str, Points] = {}
    all_points: list[tuple[float, float]] = []
    for name, points in lines.items():
        finite_lines[name] = [point for point in points if all(map(math.isfinite, point))]
        all_points += finite_lines[name]

    is_complete = len(all_points) == sum(map(len, lines.values()))
    legend = "" if len(lines) == 1 and is_complete else _draw_legend(lines, finite_lines)
    if not all_points:
        return _build_figure(title, legend, "<p>No points.</p>")

    xs, ys = zip(*all_points, strict=True)
    x_axis, y_axis = _horizontal_axis(xs), _vertical_axis(ys)
    drawn: list[str] = []
    for number, points in enumerate(finite_lines.values()):
        drawn.append(_draw_line(points, number % COLOURS, x_axis, y_axis))
    return _build_figure(title, legend, _draw_plot(title, along, x_axis, y_axis, "".join(drawn)))


def bar_chart(
    title: str,
    along: str,
    edges: Sequence[float],
    counts: Sequence[int],
    *,
    is_log: bool = False,
) -> Markup:
    """Draw a histogram.

    Args:
        along: what is counted, with its unit.
        edges: (bars + 1,) ends of the bars.
        counts: (bars,) heights of the bars.
        is_log: the horizontal axis is logarithmic; all edges are above 0.
    """
    if not any(counts):
        return _build_figure(title, "", "<p>No values.</p>")

    x_axis = replace(_horizontal_axis((edges[0], edges[-1])), is_log=is_log, is_whole=False)
    y_axis = _vertical_axis((0, max(counts)))
    bars = _draw_bars(edges, counts, x_axis, y_axis)
    return _build_figure(title, "", _draw_plot(title, along, x_axis, y_axis, bars))


def _draw_legend(lines: Mapping[str, Points], finite_lines: Mapping[str, Points]) -> str:
    """Name the lines in their colours, with the numbers of points that are not drawn."""
    marks: list[str] = []
    for number, (name, points) in enumerate(lines.items()):
        text = shown(name)
        left_out = len(points) - len(finite_lines[name])
        if left_out:
            text += f" ({left_out} points are not finite)"
        marks.append(f'<span class="line-{number % COLOURS}">{escape(text)}</span>')

    return "".join(marks)


def _axis_ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis, which are apart also for one value."""
    low, high = min(values), max(values)
    if low < high:
        return low, high

    half = abs(low) / 2 or 1
    return low - half, high + half


def _horizontal_axis(values: Sequence[float]) -> Axis:
    """Return an axis that ends at the lowest and the highest value."""
    return Axis(*_axis_ends(values), LEFT, WIDTH - LEFT - RIGHT, is_whole=_are_whole(values))


def _vertical_axis(values: Sequence[float]) -> Axis:
    """Return an axis that ends at ticks. Its length is negative: pixels count downwards."""
    floor, length = HEIGHT - BOTTOM, TOP + BOTTOM - HEIGHT
    axis = Axis(*_axis_ends(values), floor, length, is_whole=_are_whole(values))
    step = axis.step()
    first = math.floor(axis.low / step + ROUNDING)
    last = math.ceil(axis.high / step - ROUNDING)
    return replace(axis, low=first * step, high=last * step)


def _are_whole(values: Sequence[float]) -> bool:
    return all(float(value).is_integer() for value in values)


def _draw_line(points: Points, colour: int, x_axis: Axis, y_axis: Axis) -> str:
    """Draw a line through points, and few points as dots too."""
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in points]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = ""
    if len(places) <= DOTTED:
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places)

    return f'<g class="line-{colour}"><polyline points="{corners}"/>{dots}</g>'


def _draw_bars(edges: Sequence[float], counts: Sequence[int], x_axis: Axis, y_axis: Axis) -> str:
    """Draw bars between edges (bars + 1,) of heights (bars,)."""
    floor = y_axis.place(0)
    bars: list[str] = []
    for number, count in enumerate(counts):
        if not count:
            continue
        left, right = x_axis.place(edges[number]), x_axis.place(edges[number + 1])
        top = y_axis.place(count)
        width = max(0.5, right - left)  # a narrower one would not be seen
        bars.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{floor - top:.1f}"/>'
        )

    return "".join(bars)


def _draw_plot(title: str, along: str, x_axis: Axis, y_axis: Axis, drawn: str) -> str:
    """Draw both axes with ticks, and what is `drawn` between them, as an SVG."""
    floor = HEIGHT - BOTTOM
    grid: list[str] = []
    labels: list[str] = []
    factor, power = _label_scale(y_axis)
    for tick in y_axis.ticks():
        y = y_axis.place(tick)
        grid.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        labels.append(
            f'<text class="y" x="{LEFT - 6}" y="{y + 4:.1f}">{_spell_tick(tick / factor)}</text>'
        )

    x_factor, x_power = _label_scale(x_axis)
    for tick in x_axis.ticks():
        x = x_axis.place(tick)
        grid.append(f'<path d="M{x:.1f} {floor}v4"/>')
        labels.append(
            f'<text class="x" x="{x:.1f}" y="{floor + 17}">{_spell_tick(tick / x_factor)}</text>'
        )

    above = 0  # room over the plot, for the power of ten
    if power:
        above = 12
        labels.append(f'<text x="{LEFT + 4}" y="{TOP - 4}">× {power}</text>')
    axis_name = f"{along}, × {x_power}" if x_power else along
    labels.append(
        f'<text class="x" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}">'
        f"{escape(axis_name)}</text>"
    )
    return (
        f'<svg viewBox="0 {-above} {WIDTH} {HEIGHT + above}" role="img" aria-label="{escape(shown(title))}">'
        f'<g class="grid">{"".join(grid)}<path d="M{LEFT} {floor}H{WIDTH - RIGHT}"/></g>'
        f'<g class="drawn">{drawn}</g>{"".join(labels)}</svg>'
    )


def _label_scale(axis: Axis) -> tuple[float, str]:
    """Return what labels of an axis are divided by, and its name; (1, "") for usual numbers."""
    largest = max(abs(axis.low), abs(axis.high))
    if axis.is_log or 1e-2 <= largest < 1e7:
        return 1.0, ""

    exponent = math.floor(math.log10(largest))
    digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return 10.0**exponent, f"10{digits}"


def _spell_tick(value: float) -> str:
    """Spell a tick: 0.05, 3, 20,000, or a power of ten."""
    if 0 < abs(value) < 1e-4:
        return f"{value:.0e}"
    return f"{value:,.10g}" if abs(value) < 1000 else f"{value:,.0f}"


def _build_figure(title: str, legend: str, drawing: str) -> Markup:
    """Return a drawing with its title and its legend, both as HTML."""
    marks = f'<span class="marks">{legend}</span>' if legend else ""
    caption = f"<figcaption>{escape(shown(title))}{marks}</figcaption>"
    # What is text of others is escaped above.
    return Markup(f'<figure class="chart">{caption}{drawing}</figure>')
