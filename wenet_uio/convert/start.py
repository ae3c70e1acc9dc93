"""The trained model that a training starts from: a run, a model of WeNet, or one of another package,
which is converted.

The folder of the source is only read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from wenet_uio.config import Config
from wenet_uio.convert.converted import write_model
from wenet_uio.convert.layouts import LAYOUTS, convert
from wenet_uio.models.lora import is_lora, merge_lora
from wenet_uio.models.weights import read_weights
from wenet_uio.run_files import FINAL_WEIGHTS, TRAIN_CONFIG
from wenet_uio.search.recogniser import CHECKPOINTS, load_model_config

EXPORTS = (".zip", ".onnx")
"""Endings of exports, whose weights cannot be trained."""
LEVELS_ABOVE_EXPORT = 3
"""Folders above an export in which its run is looked for."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """A trained model in our form."""

    path: Path
    """What the user named."""
    weights: Path
    config: Config
    """Its train.yaml."""

    def read_weights(self) -> dict[str, torch.Tensor]:
        """Read the weights; low-rank weights (LoRA) are merged.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is damaged, or has no weights of a model.
        """
        weights = read_weights(self.weights)
        if any(map(is_lora, weights)):
            weights = merge_lora(weights, self.config.lora_conf)
        return weights


def open_start(
    path: str | Path, folder: Path, *, make: bool = True, trust_code: bool = False
) -> Start:
    """Open a trained model.

    Args:
        path: folder of a run or of a model of WeNet, weights in such a folder, an export below it,
            or a model in one of LAYOUTS.
        folder: where a converted model is written.
        make: convert a model of another package. False: another rank has written `folder`.
        trust_code: accept code of other packages that the train.yaml names.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: training cannot start from such a file or folder, or it is damaged.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")

    weights = _weights_at(path)
    if weights is None:
        if make:
            _convert(path, folder)
        weights = folder / FINAL_WEIGHTS

    config = load_model_config(weights.parent / TRAIN_CONFIG, trust_code=trust_code)
    return Start(path, weights, config)


def _weights_at(path: Path) -> Path | None:
    """Return the weights of a run or of a model of WeNet; None for a model of another package.

    Raises:
        ValueError: `path` is an export without its run, or weights without a train.yaml.
    """
    if path.is_file() and path.suffix not in EXPORTS and (path.parent / TRAIN_CONFIG).is_file():
        return path
    if (path / TRAIN_CONFIG).is_file():
        weights = _weights_in(path)
        if weights is None:
            raise FileNotFoundError(f"{path}: neither {' nor '.join(CHECKPOINTS)} in it")
        return weights

    if path.suffix in EXPORTS or (path.is_dir() and any(path.glob("*.onnx"))):
        return _weights_above(path)
    return None


def _weights_in(folder: Path) -> Path | None:
    return next((folder / name for name in CHECKPOINTS if (folder / name).is_file()), None)


def _weights_above(export: Path) -> Path:
    """Return the weights of the run that an export lies in.

    Raises:
        ValueError: there is no such run.
    """
    for folder in export.resolve().parents[:LEVELS_ABOVE_EXPORT]:
        weights = _weights_in(folder)
        if weights is not None and (folder / TRAIN_CONFIG).is_file():
            log.info("%s: an export cannot be trained; its run has the weights %s", export, weights)
            return weights

    raise ValueError(
        f"{export}: an export, whose weights cannot be trained; give the folder of its run, with "
        f"{TRAIN_CONFIG} and {' or '.join(CHECKPOINTS)}"
    )


def _convert(path: Path, folder: Path) -> None:
    """Convert a model of another package, and write it to `folder`."""
    path, layout = _layout_at(path)
    try:
        converted = convert(path, layout)
    except ValueError as error:
        advice = f"; weights of this package and of WeNet need their {TRAIN_CONFIG} beside them"
        raise ValueError(f"{error}{advice if path.is_file() else ''}") from None

    count = write_model(converted, folder)
    log.info("%s: %s with %d weights, converted to %s", path, layout, count, folder)
    for note in converted.notes:
        log.info("%s: %s", path, note)


def _layout_at(path: Path) -> tuple[Path, str]:
    """Return the path of a model of another package, and the name of its layout.

    A file in a folder that has a layout stands for the folder.

    Raises:
        ValueError: there is no such model.
    """
    for place in (path.parent, path) if path.is_file() else (path,):
        for name, layout in LAYOUTS.items():
            if layout.found_at(place):
                return place, name

    kinds = "; ".join(layout.what for layout in LAYOUTS.values())
    raise ValueError(
        f"{path}: training cannot start from this: expected a folder with {TRAIN_CONFIG} and "
        f"{' or '.join(CHECKPOINTS)}; {kinds}"
    )
