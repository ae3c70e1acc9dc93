"""Exported models with att_context_size and dwconv2d8 give the numbers of the checkpoint, also for
several blocks.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.export.test_encoders import make
from wenet_uio.export.chunks import OFFLINE
from wenet_uio.export.torchscript import from_torchscript, to_torchscript
from wenet_uio.models import ASRModel
from wenet_uio.models.attention import LEAST_BLOCK

CONF: dict[str, Any] = {
    **{
        "output_size": 16,
        "attention_heads": 2,
        "num_blocks": 2,
        "linear_units": 32,
        "cnn_module_kernel": 7,
    },
    **{"input_layer": "dwconv2d8", "subsampling_conv_channels": 8, "att_context_size": [6, 3]},
}
ROTARY = {"pos_enc_layer_type": "rope_pos", "selfattention_layer_type": "rope_abs_selfattn"}
LENGTHS = (60, 8 * (2 * LEAST_BLOCK) + 100)
"""Feature frames of less than a block, and of three blocks."""


@pytest.fixture(params=[{}, ROTARY], ids=["rel_pos", "rope_pos"])
def model(request: pytest.FixtureRequest) -> ASRModel:
    return make("conformer", {**CONF, **request.param})


@pytest.mark.third
@torch.no_grad()
def test_torchscript_gives_the_log_probabilities_of_the_checkpoint(model: ASRModel) -> None:
    runtime = from_torchscript(to_torchscript(model))
    assert (runtime.subsampling_rate(), runtime.right_context()) == (8, 14)
    nothing = torch.zeros(0, 0, 0, 0)
    for frames in LENGTHS:
        feats = torch.randn(1, frames, 40)
        expected = model.ctc_log_probs(model.encode(feats, torch.tensor([frames]))[0])
        with torch.jit.optimized_execution(False):
            found = runtime.ctc_activation(
                runtime.forward_encoder_chunk(feats, 0, -1, nothing, nothing)[0]
            )
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.third
@torch.no_grad()
def test_onnx_gives_the_log_probabilities_of_the_checkpoint(model: ASRModel) -> None:
    from wenet_uio.addons.runtimes.onnx_files import to_onnx
    from wenet_uio.addons.runtimes.onnx_graphs import sherpa_graph
    from wenet_uio.addons.runtimes.onnx_models import OnnxModel

    content = to_onnx(sherpa_graph(model, 40, OFFLINE))
    assert b"Loop" in content  # over the blocks
    graph = OnnxModel(content)
    for frames in LENGTHS:
        feats, lengths = torch.randn(2, frames, 40), torch.tensor([frames, frames - 31])
        encoded, expected_lengths = model.encode(feats, lengths)
        found, found_lengths = graph(x=feats, x_lens=lengths)
        assert torch.equal(torch.as_tensor(found_lengths), expected_lengths)
        expected = model.ctc_log_probs(encoded)
        for row, size in enumerate(expected_lengths.tolist()):
            torch.testing.assert_close(
                torch.as_tensor(found)[row, :size], expected[row, :size], atol=1e-4, rtol=1e-4
            )


@pytest.mark.third
@torch.no_grad()
def test_the_wenet_graph_gives_the_frames_of_the_checkpoint(model: ASRModel) -> None:
    from wenet_uio.addons.runtimes.onnx_files import to_onnx
    from wenet_uio.addons.runtimes.onnx_graphs import wenet_graphs
    from wenet_uio.addons.runtimes.onnx_models import OnnxModel

    graph = OnnxModel(to_onnx(wenet_graphs(model, 40, OFFLINE)["encoder.onnx"]))
    att_cache, cnn_cache = torch.zeros(2, 2, 0, 16), torch.zeros(2, 1, 16, 0)
    for frames in LENGTHS:
        feats = torch.randn(1, frames, 40)
        found = graph(
            chunk=feats,
            required_cache_size=torch.tensor(0),
            att_cache=att_cache,
            cnn_cache=cnn_cache,
        )[0]
        expected, _ = model.encode(feats, torch.tensor([frames]))
        torch.testing.assert_close(torch.as_tensor(found), expected, atol=1e-4, rtol=1e-4)
