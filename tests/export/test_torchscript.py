"""Exported models: the runtime's methods, the checkpoint's numbers."""

from __future__ import annotations

import pytest
import torch

from wenet_uio.config import parse_config
from wenet_uio.export.check import compare
from wenet_uio.export.torchscript import from_torchscript, to_torchscript
from wenet_uio.models import ASRModel, build_model

VOCAB = 12
NOTHING = torch.zeros(0, 0, 0, 0)
STREAMING = {"causal": True, "cnn_module_kernel": 8, "cnn_module_norm": "layer_norm", "use_dynamic_chunk": True}
CASES = {
    "transformer": ("transformer", "transformer", {}),
    "conformer": ("conformer", "transformer", {}),
    "u2pp": ("conformer", "bitransformer", STREAMING),
}


def make(case: str) -> ASRModel:
    encoder, decoder, encoder_conf = CASES[case]
    torch.manual_seed(0)
    small = {"output_size": 16, "attention_heads": 2, "linear_units": 32, "num_blocks": 2}
    values = {
        "encoder": encoder,
        "encoder_conf": {**small, **encoder_conf},
        "decoder": decoder,
        "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
        "model_conf": {"reverse_weight": 0.3 if decoder == "bitransformer" else 0.0},
        "tokenizer_conf": {"special_tokens": {"<sos>": VOCAB - 1, "<eos>": VOCAB - 1}},
        "input_dim": 40,
        "output_dim": VOCAB,
    }
    return build_model(parse_config(values, "test")).eval()


def examples(count: int) -> list[tuple[str, torch.Tensor]]:
    torch.manual_seed(1)
    return [(f"utterance{i}", torch.randn(1, 60 + 7 * i, 40)) for i in range(count)]


@pytest.mark.parametrize("case", CASES)
def test_exported_model_answers_the_runtimes_questions(case):
    runtime = from_torchscript(to_torchscript(make(case)))
    assert (runtime.subsampling_rate(), runtime.right_context()) == (4, 6)
    assert (runtime.sos_symbol(), runtime.eos_symbol()) == (VOCAB - 1, VOCAB - 1)
    assert runtime.is_bidirectional_decoder() == (case == "u2pp")


@pytest.mark.parametrize("case", CASES)
def test_exported_model_decodes_as_the_checkpoint(case):
    model = make(case)
    agreement = compare(model, from_torchscript(to_torchscript(model)), examples(5), limit=4)
    assert agreement.utterances == 4
    assert agreement.differences == ()
    assert agreement.largest < 1e-4


@pytest.mark.parametrize("case", CASES)
def test_int8_model_stays_near_the_checkpoint_and_leaves_it_as_it_was(case):
    model = make(case)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    agreement = compare(model, from_torchscript(to_torchscript(model, quantize=True)), examples(3), limit=3)
    assert 0 < agreement.largest < 0.2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("left_chunks", [-1, 2])
def test_exported_model_streams_as_the_checkpoint_does(left_chunks):
    model, chunk = make("u2pp"), 4
    runtime = from_torchscript(to_torchscript(model))
    feats = torch.randn(1, 131, 40)
    att_cache, cnn_cache, outputs, offset = NOTHING, NOTHING, [], 0
    for start in range(0, feats.size(1) - 6, 4 * chunk):
        window = feats[:, start : start + (chunk - 1) * 4 + 7]
        output, att_cache, cnn_cache = runtime.forward_encoder_chunk(
            window, offset, chunk * left_chunks, att_cache, cnn_cache
        )
        outputs.append(output)
        offset += output.size(1)
    assert att_cache.shape == (2, 2, offset if left_chunks < 0 else chunk * left_chunks, 16)
    assert cnn_cache.shape == (2, 1, 16, 7)
    expected, _ = model.encode(feats, torch.tensor([131]), chunk, left_chunks)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, atol=1e-4, rtol=1e-4)


def test_a_wrong_export_is_noticed():
    model = make("conformer")
    runtime = from_torchscript(to_torchscript(make("conformer")))
    with torch.no_grad():
        model.ctc.ctc_lo.weight.neg_()
    agreement = compare(model, runtime, examples(2), limit=2)
    assert agreement.differing == 2
    assert agreement.largest > 0.1


def test_nothing_to_check_is_an_error():
    model = make("transformer")
    with pytest.raises(ValueError, match="no utterance"):
        compare(model, from_torchscript(to_torchscript(model)), [("short", torch.randn(1, 3, 40))], limit=5)
