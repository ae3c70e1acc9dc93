"""Layouts of models of other packages, which families and encoders name in their records."""

from __future__ import annotations

from dataclasses import dataclass

from wenet_uio.config.named_code import Loaded


@dataclass(frozen=True)
class CheckpointLayout:
    """A layout of a model of another package."""

    what: str
    """What it holds, in words."""
    found_at: Loaded
    """`found_at(path)`: whether a file or folder has this layout; reads at most the beginning of a
    file."""
    convert: Loaded
    """`convert(path, vocabulary)` returns the wenet_uio.models.converted.Converted model;
    `vocabulary` is a path of the user or None."""
    write: Loaded | None = None
    """`write(folder, output)` writes a trained model of ours in this layout, and returns the number
    of its weights. None: the layout is read only."""
