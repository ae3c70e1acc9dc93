"""Load a model for use: the folder of a run, a model in WeNet's layout, or an export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.base.run_files import TRAIN_CONFIG
from wenet_uio.config.trust import Trust
from wenet_uio.export.exported import FOLDERS, TORCHSCRIPT, ExportedModel, folders_above, has_onnx
from wenet_uio.export.torchscript import from_torchscript
from wenet_uio.models import build_model
from wenet_uio.models.asr_model import ASRModel, with_attention
from wenet_uio.search.recogniser import (
    CHECKPOINTS,
    Recogniser,
    find_weights,
    load_model_config,
    load_recogniser,
)
from wenet_uio.text.tokenizer import build_tokenizer


def load_model(
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    device: str = "auto",
    trust_code: Trust = False,
) -> SpeechRecogniser:
    """Load a recogniser.

        recogniser = wenet_uio.load_model("exp/conformer")
        print(recogniser.transcribe("talk.mp3").text)

    Args:
        path: folder with train.yaml and weights (a run, or a model in WeNet's layout); weights in
            such a folder; or an export: final.zip, or a folder of export_onnx.py, below the folder
            of its run.
        checkpoint: weights; by default avg.pt or final.pt of the folder.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N. Exports run on the CPU.
        trust_code: run the operators that the train.yaml names, which can be any code.

    Raises:
        OSError: a file does not exist.
        ValueError: the config is wrong or names operators that are not trusted, the weights are
            those of another model, or the folders of an export are of different models.
    """
    files = model_files(Path(path), checkpoint)
    if files.export is not None:
        recogniser = _load_export(files.export, files.run, trust_code)
        return SpeechRecogniser(recogniser, files.run, "cpu")

    recogniser = load_recogniser(files.run, files.weights, trust_code=trust_code)
    return SpeechRecogniser(recogniser, files.run, device)


@dataclass(frozen=True)
class ModelFiles:
    """Where the parts of a model are: its weights, or its export."""

    run: Path
    """Folder with the train.yaml."""
    weights: Path | None = None
    """None: those of the folder."""
    export: Path | None = None


def model_files(path: Path, checkpoint: str | Path | None = None) -> ModelFiles:
    """Find the parts of what load_model takes; see there.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: the folders of an export are of different models.
    """
    if checkpoint is not None:
        return ModelFiles(_checked_run(path), weights=Path(checkpoint))
    if export := _export_at(path):
        return ModelFiles(_find_run(export), export=export)
    if path.is_file() and path.suffix == ".pt":
        return ModelFiles(_checked_run(path.parent), weights=path)

    return ModelFiles(_checked_run(path))


def _checked_run(folder: Path) -> Path:
    """Return the folder of a run.

    Raises:
        FileNotFoundError: it has no train.yaml.
    """
    if (folder / TRAIN_CONFIG).is_file():
        return folder

    if not folder.exists():
        lack = "no such file or folder"
    elif folder.suffix == ".onnx":
        lack = "one file of an export; give its folder"
    else:
        weights = " or ".join(CHECKPOINTS)
        lack = f"expected a folder with {TRAIN_CONFIG} and {weights}, or an export ({TORCHSCRIPT}, onnx/)"
    raise FileNotFoundError(f"{folder}: {lack}")


def _export_at(path: Path) -> Path | None:
    """Return the zip file, or the folder with ONNX files, that `path` names; a folder with a
    checkpoint is no export.

    Raises:
        ValueError: `path` has folders with ONNX files of different models.
    """
    if path.is_file():
        return path if path.suffix == ".zip" else None
    if find_weights(path) is not None:
        return None

    onnx_folder = _onnx_folder_at(path)
    if onnx_folder is not None:
        return onnx_folder

    return path / TORCHSCRIPT if (path / TORCHSCRIPT).is_file() else None


def _onnx_folder_at(path: Path) -> Path | None:
    """Return the folder with ONNX files that `path` is or contains.

    Raises:
        ValueError: it contains several, of different models.
    """
    if has_onnx(path):
        return path

    folders = [path / name for name in FOLDERS if has_onnx(path / name)]
    if not folders:
        return None

    from wenet_uio.addons.runtimes.onnx_files import require_same_weights

    require_same_weights(folders)
    return folders[0]


def _find_run(export: Path) -> Path:
    """Return the nearest folder with a train.yaml, at most three above the export.

    Raises:
        FileNotFoundError: there is none.
    """
    folders = (export, *folders_above(export))
    folder = next((folder for folder in folders if (folder / TRAIN_CONFIG).is_file()), None)
    if folder is None:
        raise FileNotFoundError(
            f"{export}: no {TRAIN_CONFIG} beside it or above; an export needs that of its run"
        )

    return folder


def _load_export(export: Path, run: Path, trust_code: Trust) -> Recogniser:
    """Load an exported model, with config and tokenizer of its run."""
    config = load_model_config(run / TRAIN_CONFIG, trust_code=trust_code)

    def untrained() -> ASRModel:
        return with_attention(build_model(config).eval())

    if export.is_file():
        model = ExportedModel(from_torchscript(export.read_bytes()), untrained())
    else:
        from wenet_uio.addons.runtimes.onnx_models import load_onnx

        model = load_onnx(export, run, untrained)

    return Recogniser(config, build_tokenizer(config), model)
