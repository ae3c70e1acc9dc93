"""Graphs -> the bytes of ONNX files, float and int8, and what reads them. Needs onnx and onnxruntime."""

from __future__ import annotations

import io
import logging
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from wenet_uio.export.onnx_graphs import Graph

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OPSET = 14
"""The first that has all of our operators: runtimes back to onnxruntime 1.8 load it."""


def require_onnx() -> tuple[ModuleType, ModuleType]:
    """The modules onnx and onnxruntime.

    Raises:
        ValueError: naming the command that installs them.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise ValueError(f"{error}; to export to ONNX: pip install onnx onnxruntime") from None
    return onnx, onnxruntime


def to_onnx(graph: Graph) -> bytes:
    """The content of a float ONNX file, with the graph's metadata."""
    onnx, _ = require_onnx()
    content = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter for traced graphs is the one that knows axes by name and needs no further package; what it warns
        # of (sizes asked for in `if`) is seen to by onnx_graphs and found by the check on real audio.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        warnings.filterwarnings("ignore", "Constant folding", UserWarning)
        torch.onnx.export(
            graph.module.eval(),
            tuple(graph.inputs.values()),
            content,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_axes=graph.dynamic_axes,
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load_from_string(content.getvalue())
    onnx.helper.set_model_props(model, {key: str(value) for key, value in graph.metadata.items()})
    onnx.checker.check_model(model)
    found = [node.name for node in model.graph.input]
    if found != list(graph.inputs):
        raise ValueError(f"the exported graph has inputs {found}, the runtime gives {list(graph.inputs)}")
    return model.SerializeToString()


def to_int8(content: bytes) -> bytes:
    """The same model with int8 weights in its matrix products (activations are quantised as they come)."""
    onnx, _ = require_onnx()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "int8.onnx")
        logging.disable(logging.WARNING)  # it advises to fold constants first, which the exporter has done
        try:
            # uint8, since products of uint8 with int8 overflow on CPUs with AVX2 but without VNNI
            quantize_dynamic(
                onnx.load_from_string(content), path, op_types_to_quantize=["MatMul"], weight_type=QuantType.QUInt8
            )
        finally:
            logging.disable(logging.NOTSET)
        return path.read_bytes()


def open_session(content: bytes) -> InferenceSession:
    """Load a model on CPU, as the runtimes do."""
    _, onnxruntime = require_onnx()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
