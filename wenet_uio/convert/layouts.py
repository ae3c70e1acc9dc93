"""The layouts of models that can be converted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.encoder_kind import encoder_kinds
from wenet_uio.config.family import families
from wenet_uio.convert.converted import Converted


def layouts() -> dict[str, CheckpointLayout]:
    """Return {name on the command line: layout} of the families and encoders of this installation."""
    records = (*families(), *encoder_kinds())
    return {name: layout for record in records for name, layout in record.layouts.items()}


def models_at(path: Path) -> list[tuple[Path, str]]:
    """Return the models of other packages that a path names: the path of each, and the name of its
    layout.

    A file in a folder that has a layout stands for the folder; a folder stands for the models in
    it.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        return _models_among([path, *files])

    return _models_among([path]) or _models_among([path.parent])


def _models_among(places: Iterable[Path]) -> list[tuple[Path, str]]:
    known = layouts()
    return [
        (place, name)
        for place in places
        for name, layout in known.items()
        if layout.found_at(place)
    ]


def model_at(path: Path) -> tuple[Path, str]:
    """As `models_at`, of the only model.

    Raises:
        OSError: there is no such path.
        ValueError: there is no model, or several.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")

    models = models_at(path)
    if not models:
        expected = "; ".join(f"{name}: {layout.what}" for name, layout in layouts().items())
        raise ValueError(f"{path}: none of the known layouts ({expected})")
    if len(models) > 1:
        names = ", ".join(f"{place.name} ({layouts()[name].what})" for place, name in models)
        raise ValueError(
            f"{path}: several models: {names}; name the file of one, or move the others away"
        )

    return models[0]


def convert(path: Path, layout: str | None = None, vocabulary: Path | None = None) -> Converted:
    """Convert the model at `path`.

    Args:
        layout: name in layouts(); None: the one that the files have.
        vocabulary: file of the tokens; None: what lies beside the model.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: no layout fits, or the model cannot be converted.
    """
    if layout is None:
        path, layout = model_at(path)

    try:
        return layouts()[layout].convert(path, vocabulary)
    except ValueError as error:
        raise ValueError(
            str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        ) from None
