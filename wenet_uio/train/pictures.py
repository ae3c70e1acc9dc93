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
    """Pictures by name: `attention_encoder`, `attention_decoder` and `ctc`, if the model has these parts."""
    drawn = {f"attention_{part}": _attention(weights, part) for part, weights in observation.attention.items()}
    if observation.posteriors is not None:
        drawn["ctc"] = _posteriors(observation.posteriors)
    return drawn


def _attention(weights: np.ndarray, part: str) -> np.ndarray:
    """One panel for each head; weights (heads, queries, keys)."""
    columns = min(4, len(weights))
    rows = -(-len(weights) // columns)
    figure = _figure(3.2 * columns, 2.6 * rows)
    for head, values in enumerate(weights):
        axes = figure.add_subplot(rows, columns, head + 1, title=f"head {head}")
        axes.imshow(values, origin="lower", aspect="auto", interpolation="nearest")
        axes.set(xlabel="encoder frame", ylabel="encoder frame" if part == "encoder" else "token")
    return _array(figure)


def _posteriors(posteriors: np.ndarray) -> np.ndarray:
    """Probabilities of the most probable units over time; posteriors (frames, units)."""
    units = np.sort(np.argsort(-posteriors.max(axis=0), kind="stable")[:SHOWN_UNITS])
    figure = _figure(10, 1.5 + 0.12 * len(units))
    axes = figure.add_subplot(xlabel="encoder frame", ylabel="unit")
    picture = axes.imshow(posteriors[:, units].T, aspect="auto", interpolation="nearest", vmin=0, vmax=1)
    axes.set_yticks(range(len(units)), [str(unit) for unit in units], fontsize=6)
    figure.colorbar(picture, label="probability")
    return _array(figure)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # slow to import; pyplot would keep global state

    return Figure(figsize=(width, height), layout="constrained", dpi=80)


def _array(figure: Figure) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
