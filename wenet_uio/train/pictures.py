"""Draw an observation as arrays (height, width, 3) of uint8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wenet_uio.train.observation import Observation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_UNITS = 40
"""Units in the picture of CTC: those with the highest probability in any frame."""


def pictures(observation: Observation) -> dict[str, np.ndarray]:
    """Draw `attention_encoder`, `attention_decoder` and `ctc`, as far as the model has them."""
    drawn = {
        f"attention_{part}": _attention(weights, part)
        for part, weights in observation.attention.items()
    }
    if observation.posteriors is not None:
        drawn["ctc"] = _posteriors(observation.posteriors)

    return drawn


def _attention(weights: np.ndarray, part: str) -> np.ndarray:
    """Draw weights (heads, queries, keys), one panel for each head."""
    columns = min(4, len(weights))
    rows = -(-len(weights) // columns)
    figure = figure_of(3.2 * columns, 2.6 * rows, rows, columns)

    for head, values in enumerate(weights):
        axes = figure.add_subplot(rows, columns, head + 1)
        # Without y, matplotlib draws all labels twice to find a place
        axes.set_title(f"head {head}", y=1.0)
        axes.imshow(values, origin="lower", aspect="auto", interpolation="nearest")
        axes.set(xlabel="encoder frame", ylabel="encoder frame" if part == "encoder" else "token")

    return _array(figure)


def _posteriors(posteriors: np.ndarray) -> np.ndarray:
    """Draw the probabilities (frames, units) of the most probable units over time."""
    units = np.sort(np.argsort(-posteriors.max(axis=0), kind="stable")[:SHOWN_UNITS])
    figure = figure_of(10, 1.5 + 0.12 * len(units))
    axes = figure.add_subplot(xlabel="encoder frame", ylabel="unit")
    picture = axes.imshow(
        posteriors[:, units].T, aspect="auto", interpolation="nearest", vmin=0, vmax=1
    )
    axes.set_yticks(range(len(units)), [str(unit) for unit in units], fontsize=6)
    figure.colorbar(picture, label="probability", pad=0.02)

    return _array(figure)


def figure_of(width: float, height: float, rows: int = 1, columns: int = 1) -> Figure:
    """Return a figure of `width` by `height` inches, with room for labels around each panel.

    The room is fixed. A layout that measures the labels takes longer than to draw the figure.
    """
    from matplotlib.figure import Figure  # slow to import; pyplot would keep global state

    left_margin, right_margin, below, above = 0.65, 0.15, 0.55, 0.3  # inches
    figure = Figure(figsize=(width, height), dpi=80)
    figure.subplots_adjust(
        left=left_margin / width,
        right=1 - right_margin / width,
        bottom=below / height,
        top=1 - above / height,
        wspace=(left_margin + right_margin) / (width / columns - left_margin - right_margin),
        hspace=(below + above) / (height / rows - below - above),
    )
    return figure


def _array(figure: Figure) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
