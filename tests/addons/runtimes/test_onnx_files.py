"""Conversion of graphs to ONNX files."""

from __future__ import annotations

import sys
from collections import Counter

import onnx
import pytest

from wenet_uio.addons.runtimes.onnx_files import OPSET, require_onnx, to_int8, to_onnx
from wenet_uio.addons.runtimes.onnx_graphs import sherpa_graph, wenet_graphs
from wenet_uio.export.chunks import OFFLINE


def operators(content: bytes) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load_from_string(content).graph.node)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match="pip install onnx onnxruntime"):
        require_onnx()


def test_files_have_an_opset_that_old_runtimes_load(make_model):
    graph = wenet_graphs(make_model("u2pp"), 40, OFFLINE)["ctc.onnx"]
    model = onnx.load_from_string(to_onnx(graph))
    assert (model.ir_version, [(used.domain, used.version) for used in model.opset_import]) == (
        7,
        [("", OPSET)],
    )


def test_every_product_with_weights_is_int8(make_model):
    model = make_model("conformer")
    content = to_onnx(sherpa_graph(model, 40, OFFLINE))
    layers = len(model.encoder.encoders)
    before, after = operators(content), operators(to_int8(content))
    assert after["MatMul"] == 2 * layers  # scores and values: no weights in them
    assert after["MatMulInteger"] == before["MatMul"] - after["MatMul"]
