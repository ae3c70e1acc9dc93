"""The trained model that a training starts from: a run, a model of WeNet, or one of another package,
which is converted.

The folder of the source is only read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from wenet_uio.base.run_files import FINAL_WEIGHTS, TRAIN_CONFIG
from wenet_uio.config import Config
from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.encoder_kind import encoder_kinds
from wenet_uio.config.family import families
from wenet_uio.config.trust import Trust
from wenet_uio.export.exported import FOLDERS, folders_above
from wenet_uio.models.converted import Converted, write_model
from wenet_uio.models.lora import is_lora, merge_lora
from wenet_uio.models.weights import read_weights
from wenet_uio.search.recogniser import CHECKPOINTS, find_weights, load_model_config
from wenet_uio.text.symbols import read_symbols

EXPORTS = (".zip", ".onnx")
"""Endings of exports, whose weights cannot be trained."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedModel:
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
        if not any(map(is_lora, weights)):
            return weights

        try:
            return merge_lora(weights, self.config.lora_conf)
        except ValueError as error:
            raise ValueError(f"{self.weights}: {error}") from None


def open_trained_model(
    path: str | Path, folder: Path, *, make: bool = True, trust_code: Trust = False
) -> TrainedModel:
    """Open a trained model.

    Args:
        path: folder of a run or of a model of WeNet, weights in such a folder, an export below it,
            or a model in one of layouts().
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
            _convert_into(path, folder)
        weights = folder / FINAL_WEIGHTS

    config = load_model_config(weights.parent / TRAIN_CONFIG, trust_code=trust_code)
    return TrainedModel(path, weights, config)


def check_other_units(path: str | Path, units: str | Path) -> None:
    """Check whether a training that starts from a trained model can have other units.

    Args:
        path: as in `open_trained_model`; only its config or the beginning of its files is read.
        units: units file; one that is not there yet has the units of texts.

    Raises:
        OSError: a file cannot be read.
        ValueError: training cannot start from `path`, or its decoder is prompted with tokens that
            the units lack.
    """
    path = Path(path)
    weights = _weights_at(path)
    if weights is None:
        _, layout = model_at(path)
        family = next((record for record in families() if layout in record.exchange.layouts), None)
    else:
        family = load_model_config(weights.parent / TRAIN_CONFIG, trust_code=False).family

    if family is None or family.special_tokens is None:
        return
    if not Path(units).exists() or family.special_tokens(read_symbols(units)) is None:
        raise ValueError(
            f"--units {units}: a {family.name} such as {path} is trained with its own units, which have "
            "the tokens of its prompt: leave --units out"
        )


def _weights_at(path: Path) -> Path | None:
    """Return the weights of a run or of a model of WeNet; None for a model of another package.

    Raises:
        OSError: a folder has a train.yaml without weights, or a file cannot be read.
        ValueError: training cannot start from `path`.
    """
    if (path / TRAIN_CONFIG).is_file():
        if weights := find_weights(path):
            return weights
        raise FileNotFoundError(f"{path}: neither {' nor '.join(CHECKPOINTS)} in it")

    models = models_at(path)
    has_config = path.is_file() and (path.parent / TRAIN_CONFIG).is_file()
    if has_config and path.suffix not in EXPORTS and path not in dict(models):
        return path
    if models:
        return None

    # An exported file, or a folder that export_onnx.py wrote
    folders = [path, *(path / name for name in FOLDERS)]
    if path.suffix in EXPORTS or any(any(folder.glob("*.onnx")) for folder in folders):
        return _weights_above(path)

    what = _describe_file(path) if path.is_file() else ""
    kinds = "; ".join(layout.what for layout in layouts().values())
    raise ValueError(
        f"{path}: training cannot start from this: {what}expected a folder with {TRAIN_CONFIG} and "
        f"{' or '.join(CHECKPOINTS)}; {kinds}"
    )


def _describe_file(path: Path) -> str:
    """Say what a file is from which training cannot start."""
    try:
        read_weights(path)
    except ValueError as error:
        return f"{str(error).removeprefix(f'{path}: ')}; "
    return f"weights of this package and of WeNet need their {TRAIN_CONFIG} beside them; "


def _weights_above(export: Path) -> Path:
    """Return the weights of the run that an export lies in.

    Raises:
        ValueError: there is no such run.
    """
    for folder in folders_above(export):
        weights = find_weights(folder)
        if weights is not None and (folder / TRAIN_CONFIG).is_file():
            log.info("%s: an export cannot be trained; its run has the weights %s", export, weights)
            return weights

    raise ValueError(
        f"{export}: an export, whose weights cannot be trained; give the folder of its run, with "
        f"{TRAIN_CONFIG} and {' or '.join(CHECKPOINTS)}"
    )


def _convert_into(path: Path, folder: Path) -> None:
    """Convert a model of another package, and write it to `folder`."""
    path, layout = model_at(path)
    converted = convert_model(path, layout)
    count = write_model(converted, folder)
    log.info("%s: %s with %d weights, converted to %s", path, layout, count, folder)
    for note in converted.notes:
        log.info("%s: %s", path, note)


def layouts() -> dict[str, CheckpointLayout]:
    """Return {name on the command line: layout} of the families and encoders of this installation."""
    known: dict[str, CheckpointLayout] = {}
    for family in families():
        known |= family.exchange.layouts
    for kind in encoder_kinds():
        known |= kind.layouts

    return known


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
    """Return (path, name of its layout) of those of the paths that are models of other packages."""
    known = layouts()
    models: list[tuple[Path, str]] = []
    for place in places:
        models += [(place, name) for name, layout in known.items() if layout.found_at(place)]

    return models


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


def convert_model(
    path: Path, layout: str | None = None, vocabulary: Path | None = None
) -> Converted:
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
        message = str(error)
        if not message.startswith(str(path)):
            message = f"{path}: {message}"
        raise ValueError(message) from None
