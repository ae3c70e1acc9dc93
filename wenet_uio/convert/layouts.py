"""The layouts of models that can be converted."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.encoder_kind import encoder_kinds
from wenet_uio.config.family import families
from wenet_uio.convert.converted import Converted

LAYOUTS: dict[str, CheckpointLayout] = {
    name: layout
    for record in (*families(), *encoder_kinds())
    for name, layout in record.layouts.items()
}
"""{name on the command line: layout}."""


def convert(path: Path, layout: str | None = None, vocabulary: Path | None = None) -> Converted:
    """Convert the model at `path`.

    Args:
        layout: name in LAYOUTS; None: the one that the files have.
        vocabulary: file of the tokens; None: what lies beside the model.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: no layout fits, or the model cannot be converted.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")

    names = (
        [layout]
        if layout
        else [name for name, candidate in LAYOUTS.items() if candidate.found_at(path)]
    )
    if not names:
        expected = "; ".join(f"{name}: {candidate.what}" for name, candidate in LAYOUTS.items())
        raise ValueError(f"{path}: none of the known layouts ({expected})")

    try:
        return LAYOUTS[names[0]].convert(path, vocabulary)
    except ValueError as error:
        raise ValueError(
            str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        ) from None
