"""Load a model for use: the folder of a run, a model in WeNet's layout, or an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.addons.runtimes.onnx_files import require_onnx
from wenet_uio.addons.runtimes.onnx_folder import FOLDERS, FOR_SHERPA, require_same_weights
from wenet_uio.addons.runtimes.onnx_graphs import CTC_FOR_SHERPA
from wenet_uio.addons.runtimes.onnx_models import (
    ExportedModel,
    OnnxModel,
    SherpaOnnx,
    StreamsOnnx,
    WenetOnnx,
)
from wenet_uio.base.run_files import TRAIN_CONFIG
from wenet_uio.export.torchscript import from_torchscript
from wenet_uio.models import build_model
from wenet_uio.models.asr_model import ASRModel, with_attention
from wenet_uio.models.encoder_traits import check_decoding_chunk
from wenet_uio.search.recogniser import CHECKPOINTS, Recogniser, load_model_config, load_recogniser
from wenet_uio.text.tokenizer import build_tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

TORCHSCRIPT = "final.zip"


def load_model(
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    device: str = "auto",
    trust_code: bool = False,
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
    found = model_files(Path(path), checkpoint)
    run = found.run
    if found.export is not None:
        recogniser = _load_export(found.export, run, trust_code)
        return SpeechRecogniser(recogniser, run, "cpu", exported=True)

    return SpeechRecogniser(load_recogniser(run, found.weights, trust_code=trust_code), run, device)


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
        return ModelFiles(_with_config(path), weights=Path(checkpoint))
    if export := _export_at(path):
        return ModelFiles(_run_of(export), export=export)
    if path.is_file() and path.suffix == ".pt":
        return ModelFiles(_with_config(path.parent), weights=path)

    return ModelFiles(_with_config(path))


def _with_config(folder: Path) -> Path:
    """Return the folder of a run.

    Raises:
        FileNotFoundError: it has no train.yaml.
    """
    if not (folder / TRAIN_CONFIG).is_file():
        raise FileNotFoundError(f"{folder}: {_what_is_missing(folder)}")
    return folder


class InPlaceOfTrained:
    """What an exported model needs in the place of a trained one; `decode` calls it with one
    utterance at a time.
    """

    def take(self, model: ASRModel) -> None:
        """Take from the untrained `model` what the export lacks: the frame rate, and the weights of
        losses.
        """
        self.encoder = model.encoder
        self.ctc_weight, self.attention_weight = model.ctc_weight, model.attention_weight
        self.family = model.family
        self.leading_frames = 0
        self.device = torch.device("cpu")
        self.masks_padding = False  # an exported model knows no lengths
        self.prompt_languages, self.prompt_tasks = model.prompt_languages, model.prompt_tasks

    def to(self, device: torch.device | str) -> Self:
        """Stay on the CPU.

        Raises:
            ValueError: another device.
        """
        if torch.device(device).type != "cpu":
            raise ValueError(
                f"device {device}: exported models run on the CPU; load the checkpoint instead"
            )
        return self

    def eval(self) -> Self:
        """Do nothing: exported models are always in evaluation mode."""
        return self


class RunnableSherpa(InPlaceOfTrained, SherpaOnnx):
    """A model.onnx with CTC for sherpa-onnx, which has no decoder."""

    def __init__(self, content: bytes, model: ASRModel) -> None:
        super().__init__(content, model)
        self.take(model)
        self.attention_weight = 0.0
        self.sos, self.eos, self.reverse_weight = model.sos, model.eos, 0.0


class RunnableExport(InPlaceOfTrained, ExportedModel):
    """A final.zip, or the ONNX files of WeNet's runtime."""

    def __init__(self, runtime: torch.jit.ScriptModule | WenetOnnx, model: ASRModel) -> None:
        super().__init__(runtime, model)
        self.take(model)

    def encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int = -1,
        num_decoding_left_chunks: int = -1,
        simulate_streaming: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ExportedModel.encode; the chunks have the limits of the checkpoint.

        Raises:
            ValueError: the model was trained with full context only, or the size is 0.
        """
        check_decoding_chunk(self.encoder.traits, decoding_chunk_size)
        return super().encode(
            feats, feats_lengths, decoding_chunk_size, num_decoding_left_chunks, simulate_streaming
        )

    def decoder_frames(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all frames, as in the runtimes; see ASRModel.decoder_frames."""
        return encoder_out, lengths


class RunnableStreams(RunnableExport):
    """The ONNX files of an export for streams."""

    def __init__(self, contents: Mapping[str, bytes], model: ASRModel) -> None:
        runtime = StreamsOnnx(contents, model.encoder)
        super().__init__(runtime, model)
        self.encoder = runtime.streams


def _export_at(path: Path) -> Path | None:
    """Return the zip file, or the folder with ONNX files, that `path` names; a folder with a
    checkpoint is no export.

    Raises:
        ValueError: `path` has folders with ONNX files of different models.
    """
    if path.is_file():
        return path if path.suffix == ".zip" else None
    if any((path / name).is_file() for name in CHECKPOINTS):
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

    require_same_weights(folders)
    return folders[0]


def has_onnx(folder: Path) -> bool:
    """Tell whether a folder is one of an ONNX export."""
    return any(
        (folder / name).is_file()
        for name in (WenetOnnx.NAMES[0], StreamsOnnx.NAMES[0], *FOR_SHERPA)
    )


def _run_of(export: Path) -> Path:
    """Return the nearest folder with a train.yaml, at most three above the export.

    Raises:
        FileNotFoundError: there is none.
    """
    # The cache of a hub has links to files in another folder, and a user may link an export.
    above = [export, *export.absolute().parents[:3], *export.resolve().parents[:3]]
    folder = next((folder for folder in above if (folder / TRAIN_CONFIG).is_file()), None)
    if folder is None:
        raise FileNotFoundError(
            f"{export}: no {TRAIN_CONFIG} beside it or above; an export needs that of its run"
        )

    return folder


def _load_export(export: Path, folder: Path, trust_code: bool) -> Recogniser:
    """Load an exported model, with config and tokenizer of its run; the name of the file, or of the
    files in the folder, says which format it has.
    """
    config = load_model_config(folder / TRAIN_CONFIG, trust_code=trust_code)

    def built() -> ASRModel:  # after the files, which may be refused
        return with_attention(build_model(config).eval())

    if not export.is_file():
        require_onnx()

    runnable: RunnableExport | RunnableSherpa
    if export.is_file():
        runnable = RunnableExport(from_torchscript(export.read_bytes()), built())
    elif (export / WenetOnnx.NAMES[0]).is_file():
        runnable = RunnableExport(WenetOnnx(_contents(export, WenetOnnx.NAMES)), built())
    elif (export / StreamsOnnx.NAMES[0]).is_file():
        runnable = RunnableStreams(_contents(export, StreamsOnnx.NAMES), built())
    else:
        runnable = RunnableSherpa(_content_for_sherpa(export, folder), built())

    return Recogniser(config, build_tokenizer(config), runnable)


def _contents(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def _content_for_sherpa(export: Path, run: Path) -> bytes:
    """Return the model of a folder that was exported for sherpa-onnx.

    Raises:
        ValueError: sherpa-onnx alone can run it.
    """
    path = next(export / name for name in FOR_SHERPA if (export / name).is_file())
    content = path.read_bytes()
    model_type = OnnxModel(content).metadata.get("model_type", "unknown")
    if model_type != CTC_FOR_SHERPA:
        raise ValueError(
            f"{path}: sherpa-onnx runs models of this type ({model_type}), this package does not; "
            f"load the run: {run}"
        )

    return content


def _what_is_missing(path: Path) -> str:
    if not path.exists():
        return "no such file or folder"
    if path.suffix == ".onnx":
        return "one file of an export; give its folder"
    return f"expected a folder with {TRAIN_CONFIG} and {' or '.join(CHECKPOINTS)}, or an export ({TORCHSCRIPT}, onnx/)"
