"""Every encoder exported to TorchScript: whole utterances, chunks, int8."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch

from wenet_uio.config import parse_config
from wenet_uio.export.torchscript import from_torchscript, to_torchscript
from wenet_uio.models import ASRModel, build_model
from wenet_uio.models.chunks import encode_chunk_by_chunk, fitting_chunk

VOCAB = 12
SMALL = {"output_size": 16, "attention_heads": 2, "num_blocks": 2}
GATED = {**SMALL, "num_blocks": 1, "cgmlp_linear_units": 40, "cgmlp_conv_kernel": 5}
SQUEEZED = {
    **SMALL,
    "encoder_dim": 16,
    "num_blocks": 3,
    "reduce_idx": 1,
    "recover_idx": 2,
    "cnn_module_kernel": 5,
}
GROUPED = {
    **SMALL,
    "linear_units": 32,
    "stride_layer_idx": 1,
    "group_layer_idx": [0],
    "cnn_module_kernel": 7,
}
ZIPFORMER = {
    **{
        "downsampling_factor": [1, 2],
        "num_encoder_layers": 1,
        "encoder_dim": [16, 24],
        "encoder_unmasked_dim": 16,
    },
    **{
        "feedforward_dim": 32,
        "num_heads": 2,
        "query_head_dim": 8,
        "cnn_module_kernel": [7, 5],
        "pos_dim": 12,
    },
}
OFFLINE = {
    "zipformer": ZIPFORMER,
    "efficientConformer": GROUPED,
    "branchformer": {**GATED, "merge_method": "learned_ave"},
    "e_branchformer": {**GATED, "linear_units": 32},
    "squeezeformer": SQUEEZED,
}
IN_CHUNKS = {"causal": True, "use_dynamic_chunk": True}
STREAMING = {
    "efficientConformer": {**GROUPED, **IN_CHUNKS, "group_size": 2},
    "branchformer": {**GATED, **IN_CHUNKS},
    "e_branchformer": {**GATED, **IN_CHUNKS, "linear_units": 32},
    "squeezeformer": {
        **SQUEEZED,
        **IN_CHUNKS,
        "do_rel_shift": False,
        "time_reduction_layer_type": "stream",
    },
}


@pytest.fixture(autouse=True)
def plainly() -> Iterator[None]:
    """The optimiser of torch takes a second for each model. The models of test_torchscript.py run
    with it.
    """
    with torch.jit.optimized_execution(False):
        yield


def make(encoder: str, encoder_conf: dict) -> ASRModel:
    torch.manual_seed(0)
    values = {
        "encoder": encoder,
        "encoder_conf": encoder_conf,
        "decoder": "transformer",
        "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
        "model": "transducer",
        "model_conf": {"transducer_weight": 0.5, "ctc_weight": 0.2, "attention_weight": 0.3},
        "tokenizer_conf": {"special_tokens": {"<sos>": VOCAB - 1, "<eos>": VOCAB - 1}},
        "input_dim": 40,
        "output_dim": VOCAB,
    }
    return build_model(parse_config(values, "test")).eval()


@cache
def streaming_content(encoder: str) -> bytes:
    """final.zip of one of STREAMING, which is exported once for all tests of this process."""
    return to_torchscript(make(encoder, STREAMING[encoder]))


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("encoder", OFFLINE)
@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_whole_utterances_give_the_log_probabilities_of_the_checkpoint(encoder, quantize):
    model = make(encoder, OFFLINE[encoder])
    runtime = from_torchscript(to_torchscript(model, quantize=quantize))
    nothing = torch.zeros(0, 0, 0, 0)
    for frames in (60, 83):
        feats = torch.randn(1, frames, 40)
        expected = model.ctc_log_probs(model.encode(feats, torch.tensor([frames]))[0])
        found = runtime.ctc_activation(
            runtime.forward_encoder_chunk(feats, 0, -1, nothing, nothing)[0]
        )
        difference = (found - expected).abs().max()
        assert 0 < difference < 0.2 if quantize else difference < 1e-4


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize(("chunk", "left_chunks"), [(4, -1), (3, 2)])
@pytest.mark.parametrize("encoder", STREAMING)
def test_chunks_give_the_log_probabilities_of_the_checkpoint_with_chunks(
    encoder, chunk, left_chunks
):
    model = make(encoder, STREAMING[encoder])
    chunk = fitting_chunk(model.encoder.traits, chunk)
    runtime = from_torchscript(streaming_content(encoder))
    feats, outputs, offset = torch.randn(1, 131, 40), [], 0
    att_cache = cnn_cache = torch.zeros(0, 0, 0, 0)
    for start in range(0, feats.size(1) - 6, 4 * chunk):
        window = feats[:, start : start + (chunk - 1) * 4 + 7]
        output, att_cache, cnn_cache = runtime.forward_encoder_chunk(
            window, offset, chunk * left_chunks, att_cache, cnn_cache
        )
        outputs.append(output)
        offset += output.size(1)
    seen = (feats.size(1) - 3) // 4
    assert att_cache.shape[1:] == (2, seen if left_chunks < 0 else chunk * left_chunks, 16)
    assert cnn_cache.shape[1:] == (1, 16, model.encoder.traits.cnn_cache_frames)
    expected, _ = model.encode(feats, torch.tensor([131]), chunk, left_chunks)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_chunks_of_a_zipformer_give_the_log_probabilities_of_the_checkpoint() -> None:
    model = make("zipformer", {**ZIPFORMER, "causal": True, "chunk_size": 8})
    runtime = from_torchscript(to_torchscript(model))
    feats, outputs = torch.randn(1, 125, 40), []
    att_cache = cnn_cache = torch.zeros(0, 0, 0, 0)
    # Chunks of 8 frames of the input layer, which sees 13 further feature frames
    for number in range(7):
        window = feats[:, 16 * number : 16 * number + 29]
        output, att_cache, cnn_cache = runtime.forward_encoder_chunk(
            window, 4 * number, 16, att_cache, cnn_cache
        )
        outputs.append(output)
    expected = encode_chunk_by_chunk(model.encoder, feats, 8, 2)[:, :28]
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, atol=1e-4, rtol=1e-4)
