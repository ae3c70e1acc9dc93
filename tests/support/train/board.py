"""What a run wrote for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def series(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Points of the files in a folder of TensorBoard, except measured times."""
    kinds = {
        "scalars": "value",
        "images": "encoded_image_string",
        "histograms": "histogram_value",
        "tensors": "tensor_proto",
    }
    events = EventAccumulator(str(folder), size_guidance=dict.fromkeys(kinds, 0))
    events.Reload()
    return {
        tag: [
            (point.step, getattr(point, value)) for point in getattr(events, kind.capitalize())(tag)
        ]
        for kind, value in kinds.items()
        for tag in events.Tags()[kind]
        if not tag.endswith(("per_second", "data_wait"))
    }
