"""Conversion of graphs to ONNX files."""

from __future__ import annotations

import sys
from collections import Counter

import onnx
import pytest

from wenet_uio.export.onnx_files import OPSET, require_onnx, to_int8, to_onnx
from wenet_uio.export.onnx_graphs import OFFLINE, Chunks, sherpa_graph, wenet_graphs


def operators(content: bytes) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load_from_string(content).graph.node)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match="pip install onnx onnxruntime"):
        require_onnx()


def test_files_have_an_opset_that_old_runtimes_load(make_model):
    model = onnx.load_from_string(to_onnx(sherpa_graph(make_model("u2pp"), 40, OFFLINE)))
    assert (model.ir_version, [(used.domain, used.version) for used in model.opset_import]) == (7, [("", OPSET)])


def test_inputs_have_the_names_and_the_order_of_the_runtimes(make_model):
    model = make_model("u2pp")
    named = {
        "sherpa": sherpa_graph(model, 40, Chunks(4, 2)),
        "wenet": wenet_graphs(model, 40, Chunks(4, 2))["encoder.onnx"],
        "growing": wenet_graphs(model, 40, Chunks(4, -1))["encoder.onnx"],
    }
    inputs = {
        name: [node.name for node in onnx.load_from_string(to_onnx(graph)).graph.input] for name, graph in named.items()
    }
    assert inputs == {
        "sherpa": ["x", "offset", "required_cache_size", "attn_cache", "conv_cache", "attn_mask"],
        "wenet": ["chunk", "offset", "required_cache_size", "att_cache", "cnn_cache", "att_mask"],
        "growing": ["chunk", "offset", "att_cache", "cnn_cache"],
    }


def test_every_product_with_weights_is_int8(make_model):
    model = make_model("conformer")
    content = to_onnx(sherpa_graph(model, 40, OFFLINE))
    layers = len(model.encoder.encoders)
    before, after = operators(content), operators(to_int8(content))
    assert after["MatMul"] == 2 * layers  # scores and values: no weights in them
    assert after["MatMulInteger"] == before["MatMul"] - after["MatMul"]
