"""Draw an observation as arrays (height, width, 3) of uint8: the darker, the larger a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wenet_uio.train.observation import Observation

if TYPE_CHECKING:
    from PIL.Image import Image

SHOWN_UNITS = 40
"""Units in the picture of CTC: those with the highest probability in any frame."""
MOST_COLUMNS = 4
"""Heads beside each other."""
WIDTH, HEIGHT = 260, 180
"""Pixels of the values of a head."""
UNIT_HEIGHT = 13
"""Pixels of the row of a unit."""
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 20, 20
"""Margins around the values, with their labels."""


def draw_pictures(observation: Observation) -> dict[str, np.ndarray]:
    """Draw `attention_encoder`, `attention_decoder` and `ctc`, as far as the model has them."""
    drawn = {}
    for part, weights in observation.attention.items():
        rows = "encoder frame" if part == "encoder" else "token"
        drawn[f"attention_{part}"] = _draw_attention(weights, rows)
    if observation.posteriors is not None:
        drawn["ctc"] = _draw_posteriors(observation.posteriors)

    return drawn


def _draw_attention(weights: np.ndarray, rows: str) -> np.ndarray:
    """Draw weights (heads, queries, keys), one panel for each head, the first query at the
    bottom.
    """
    from PIL import Image

    queries = weights.shape[1]
    labels = [""] * queries
    labels[0], labels[-1] = str(queries - 1), "0"
    panels = []
    for head, values in enumerate(weights):
        largest = float(np.nan_to_num(values).max())
        title = f"head {head}: {rows} by encoder frame, black: {largest:.2g}"
        panels.append(heat_map(values[::-1], title, labels, WIDTH, HEIGHT, black=largest))

    width, height = panels[0].size
    columns = min(MOST_COLUMNS, len(panels))
    picture = Image.new("L", (columns * width, -(-len(panels) // columns) * height), "white")
    for number, panel in enumerate(panels):
        picture.paste(panel, (number % columns * width, number // columns * height))

    return np.array(picture.convert("RGB"))


def _draw_posteriors(posteriors: np.ndarray) -> np.ndarray:
    """Draw the probabilities (frames, units) of the most probable units over time."""
    units = np.sort(np.argsort(-posteriors.max(axis=0), kind="stable")[:SHOWN_UNITS])
    title = "probability of units by encoder frame, black: 1"
    height = UNIT_HEIGHT * len(units)
    picture = heat_map(posteriors[:, units].T, title, list(map(str, units)), 3 * WIDTH, height)
    return np.array(picture.convert("RGB"))


def heat_map(
    values: np.ndarray,
    title: str,
    labels: Sequence[str],
    width: int,
    height: int,
    black: float = 1.0,
) -> Image:
    """Draw values (rows, columns), the first row on top.

    Args:
        labels: one for each row, left of it.
        width: pixels of the values.
        height: pixels of the values.
        black: the value that is black; 0 is white.
    """
    from PIL import Image, ImageDraw  # no training needs them before its first picture

    darkness = np.nan_to_num(values) / (black or 1.0)
    shades = Image.fromarray(np.round(255 * (1 - darkness.clip(0, 1))).astype(np.uint8))
    picture = Image.new("L", (LEFT + width + RIGHT, TOP + height + BOTTOM), "white")
    picture.paste(shades.resize((width, height), Image.Resampling.NEAREST), (LEFT, TOP))

    pen = ImageDraw.Draw(picture)
    pen.rectangle((LEFT - 1, TOP - 1, LEFT + width, TOP + height), outline="grey")
    pen.text((LEFT, TOP - 4), title, "black", anchor="ls")
    pen.text((LEFT, TOP + height + 4), "0", "black", anchor="la")
    pen.text((LEFT + width, TOP + height + 4), str(values.shape[1] - 1), "black", anchor="ra")
    for row, label in enumerate(labels):
        middle = TOP + (row + 0.5) * height / len(labels)
        pen.text((LEFT - 4, middle), label, "black", anchor="rm")

    return picture
