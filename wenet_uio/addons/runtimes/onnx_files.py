"""The bytes of ONNX files, float and int8, and the folders of an export. Needs onnx and onnxruntime.

A folder is the former or the new one, never a mixture. Each of its files has the same `export_id` in
its metadata: files of two exports are refused when they are loaded together. `weights_id` says which
weights the folder has, so that folders beside each other can be compared.
"""

from __future__ import annotations

import hashlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from wenet_uio.addons.runtimes.onnx_graphs import Graph
from wenet_uio.base.files import folder_written_aside
from wenet_uio.base.messages import note
from wenet_uio.export.exported import FOLDER_FILES, FOLDERS, ONNX_FILES, TOKENS

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OPSET = 14
"""The first opset with all operators of the models; onnxruntime 1.8 and newer load it."""
EXPORT_ID = "export_id"
WEIGHTS_ID = "weights_id"
UNKNOWN = "unknown"

log = logging.getLogger(__name__)


def require_onnx() -> tuple[ModuleType, ModuleType]:
    """Import onnx and onnxruntime.

    Raises:
        ValueError: a package is missing; the message has the command that installs it.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise ValueError(f"{error}; to export to ONNX: pip install onnx onnxruntime") from None
    return onnx, onnxruntime


def to_onnx(graph: Graph) -> bytes:
    """Return the content of a float ONNX file, with the graph's metadata.

    Raises:
        ValueError: onnx is missing, or the inputs of the exported graph differ from those of
            `graph`.
    """
    onnx, _ = require_onnx()
    content = io.BytesIO()
    with warnings.catch_warnings():
        # Only the exporter for traced graphs supports named axes without another package. It warns
        # of sizes in `if` conditions: onnx_graphs avoids them, and the check on real audio would
        # find any that remain.
        warnings.simplefilter("ignore", DeprecationWarning)
        # torch.jit.__all__ lacks TracerWarning, although torch documents how to filter it.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # pyright: ignore[reportPrivateImportUsage]
        warnings.filterwarnings("ignore", "Constant folding", UserWarning)
        warnings.filterwarnings("ignore", "The shape inference of prim::", UserWarning)  # of loops
        torch.onnx.export(
            graph.module.eval(),
            tuple(graph.inputs.values()),
            # The stub lacks file objects, which the exporter for traced graphs accepts.
            content,  # pyright: ignore[reportArgumentType]
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_axes=graph.dynamic_axes,
            opset_version=OPSET,
            dynamo=False,
        )

    model = onnx.load_from_string(content.getvalue())
    onnx.helper.set_model_props(model, {key: str(value) for key, value in graph.metadata.items()})
    onnx.checker.check_model(model)
    graph_inputs = [node.name for node in model.graph.input]
    if graph_inputs != list(graph.inputs):
        raise ValueError(
            f"the exported graph has the inputs {graph_inputs}, but the runtime passes "
            f"{list(graph.inputs)}"
        )

    return model.SerializeToString()


def to_int8(content: bytes) -> bytes:
    """Quantise the weights of matrix products to int8; activations are quantised at run time."""
    onnx, _ = require_onnx()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "int8.onnx")
        # onnxruntime advises to fold constants; the exporter has done that
        logging.disable(logging.WARNING)
        try:
            # uint8: products of uint8 and int8 overflow on CPUs with AVX2 but without VNNI.
            quantize_dynamic(
                onnx.load_from_string(content),
                path,
                op_types_to_quantize=["MatMul"],
                weight_type=QuantType.QUInt8,
            )
        finally:
            logging.disable(logging.NOTSET)

        return path.read_bytes()


def open_session(content: bytes, name: str) -> InferenceSession:
    """Load a model on the CPU, as the runtimes do; `name` of its file is for messages.

    Raises:
        ValueError: the file is damaged, or onnxruntime is too old for it.
    """
    _, onnxruntime = require_onnx()
    errors = onnxruntime.capi.onnxruntime_pybind11_state
    damaged_file_errors = (
        errors.Fail,
        errors.InvalidArgument,
        errors.InvalidGraph,
        errors.InvalidProtobuf,
        errors.NotImplemented,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3

    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except damaged_file_errors as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{name}: onnxruntime {onnxruntime.__version__} cannot open it ({reason}); copy the "
            "file or export the model again"
        ) from None


def write_folder(
    path: Path, contents: Mapping[str, bytes], tokens: str | None, weights_id: str
) -> None:
    """Write the files of an export in place of those of an earlier export, which are removed; tell
    which file names the new one does not have. Files of the user in the folder stay.

    Args:
        contents: {file name: ONNX model}.
        tokens: text of tokens.txt; None writes none.
        weights_id: identifies the weights of the exported model.

    Raises:
        OSError: the folder cannot be written; the former one is as it was.
    """
    written = {*contents} if tokens is None else {*contents, TOKENS}
    for name in sorted(FOLDER_FILES - written):
        if (path / name).exists():
            note(f"{path / name}: of an earlier export, removed")

    digest = hashlib.sha256(b"".join(contents.values())).hexdigest()
    ids = {WEIGHTS_ID: weights_id, EXPORT_ID: digest[:16]}
    # The new folder takes the place of the former one at its end, with the files that are not ours.
    with folder_written_aside(path, is_ours=_is_exported) as folder:
        for name, content in contents.items():
            (folder / name).write_bytes(_add_ids(content, ids))
        if tokens is not None:
            (folder / TOKENS).write_text(tokens, encoding="utf-8")


def _add_ids(content: bytes, ids: Mapping[str, str]) -> bytes:
    """Return an ONNX model with the ids of its export."""
    onnx, _ = require_onnx()
    model = onnx.load_from_string(content)
    for name, value in ids.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = name, value

    return model.SerializeToString()


@contextmanager
def older_folders_told(output_dir: Path, weights_id: str) -> Iterator[None]:
    """Warn at the end of the block of folders of an earlier export that the block, which writes
    others, has not replaced.

    Args:
        weights_id: of the export of the block.
    """
    before = _folder_inodes(output_dir)
    try:
        yield
    finally:
        after = _folder_inodes(output_dir)
        older = [output_dir / name for name in after if after[name] == before.get(name)]
        if older and after != before:
            has_same_weights = all(read_weights_id(folder) == weights_id for folder in older)
            print(
                f"warning: {', '.join(map(str, older))}: of an earlier export with "
                f"{'the same' if has_same_weights else 'other'} weights, and not replaced; remove what is not "
                "needed",
                file=sys.stderr,
            )


def _folder_inodes(output_dir: Path) -> dict[str, int]:
    """Return the inode of each exported folder; a folder that replaces it has another one."""
    inodes: dict[str, int] = {}
    for name in FOLDERS:
        folder = output_dir / name
        if any(_is_exported(file) for file in _files_in(folder)):
            inodes[name] = folder.stat().st_ino
    return inodes


def require_same_weights(folders: Sequence[Path]) -> None:
    """Check that folders beside each other are exports of the same weights.

    Raises:
        ValueError: they are not.
    """
    ids = [read_weights_id(folder) for folder in folders]
    if len(set(ids)) > 1:
        named_ids = [f"{folder.name} {found}" for folder, found in zip(folders, ids, strict=True)]
        weights_of_folders = ", ".join(named_ids)
        raise ValueError(
            f"{folders[0].parent}: folders of different models ({WEIGHTS_ID}: {weights_of_folders}): name "
            "one of them, remove the older ones, or export again"
        )


def read_weights_id(folder: Path) -> str:
    """Return the id of the weights of an exported folder.

    UNKNOWN for files that are damaged or have no id, as those of WeNet.
    """
    onnx, _ = require_onnx()
    from google.protobuf.message import DecodeError  # protobuf comes with onnx

    models = [file for file in _files_in(folder) if file.name in ONNX_FILES]
    if not models:
        return UNKNOWN

    # All files of a folder have the same ids, and that of CTC takes the least time to read.
    smallest = min(models, key=lambda file: file.stat().st_size)
    try:
        entries = onnx.load(smallest).metadata_props
    except DecodeError as error:
        log.warning("%s cannot be read (%s)", smallest, error)
        return UNKNOWN

    return next((entry.value for entry in entries if entry.key == WEIGHTS_ID), UNKNOWN)


def _files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_exported(file: Path) -> bool:
    return file.name in FOLDER_FILES
