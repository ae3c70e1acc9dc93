"""Convert graphs to the bytes of ONNX files, float or int8, and load such files. Needs onnx and
onnxruntime.
"""

from __future__ import annotations

import io
import logging
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from wenet_uio.addons.runtimes.onnx_graphs import Graph

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OPSET = 14
"""The first opset with all operators of the models; onnxruntime 1.8 and newer load it."""


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
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3

    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except (
        *(errors.Fail, errors.InvalidArgument, errors.InvalidGraph),
        *(errors.InvalidProtobuf, errors.NotImplemented),
    ) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{name}: onnxruntime {onnxruntime.__version__} cannot open it ({reason}); copy the "
            "file or export the model again"
        ) from None
