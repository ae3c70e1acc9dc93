"""Efficient Conformer: WeNet's chunks, chunks that do not fit, frame rates, invalid configs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.models.test_golden2 import Golden, assert_close, assert_hypotheses, assert_losses
from wenet_uio.base.messages import said_once
from wenet_uio.config import ConfigError, parse_config, save_config
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.chunks import ChunkEncoder, encode_chunk_by_chunk, fitting_chunk
from wenet_uio.search.recogniser import FrameClock

KIND = "efficientConformer"
GROUPS = {
    "num_blocks": 3,
    "linear_units": 32,
    "stride_layer_idx": 1,
    "group_layer_idx": [0, 1],
    "cnn_module_kernel": 6,
}
CAUSAL = {**GROUPS, "causal": True, "cnn_module_norm": "layer_norm", "use_dynamic_chunk": True}
QUARTER = {
    **CAUSAL,
    "num_blocks": 4,
    "stride_layer_idx": [0, 2],
    "stride": [2, 2],
    "group_layer_idx": [1, 2, 3],
}
BATCH = (
    torch.randn(2, 80, 40),
    torch.tensor([80, 70]),
    torch.tensor([[1, 2], [4, -1]]),
    torch.tensor([2, 1]),
)


@pytest.fixture(
    params=["efficient_conformer", "efficient_conformer_stream", "efficient_conformer_v2"]
)
def case(request: pytest.FixtureRequest, golden2: Path) -> Golden:
    return Golden(golden2 / request.param)


@torch.no_grad()
def test_each_chunk_gives_wenets_frames_also_where_streaming_differs_from_one_pass(
    case: Golden,
) -> None:
    feats = case.batch[0][:1]
    keys = [key for key in case.expected if key.startswith("encoder_stream_chunk")]
    assert len(keys) == 6
    for key in keys:
        chunk, left = (
            int(number) for number in key.removeprefix("encoder_stream_chunk").split("_left")
        )
        if chunk % case.model.encoder.traits.reduction == 0:
            found = encode_chunk_by_chunk(case.model.encoder, feats, chunk, left)
            assert_close(found, case.expected[key])


@torch.no_grad()
def test_masked_passes_and_losses_with_chunks_equal_wenets(case: Golden) -> None:
    for chunk, left in ((4, -1), (8, 2), (12, 1)):
        found, _ = case.model.encode(*case.batch[:2], chunk, left)
        expected = case.expected[f"encoder_out_chunk{chunk}_left{left}"]
        assert_close(found[case.valid], expected[case.valid])
    case.model.train()
    encoder = case.model.encoder
    encoder.traits = replace(encoder.traits, dynamic_chunks=False, static_chunk_size=8)
    assert_losses(case.model(*case.batch), case.expected["losses_train_chunk8"])
    for name, values in case.expected["losses_train_chunk8"].get("batch_norm_after", {}).items():
        assert_close(case.model.state_dict()[name].float(), values.float())


@torch.no_grad()
def test_hypotheses_of_chunks_and_of_a_stream_equal_wenets(golden2: Path) -> None:
    case = Golden(golden2 / "efficient_conformer_stream")
    assert_hypotheses(case, case.batch[:2], case.expected["hyps_chunk8"], decoding_chunk_size=8)
    stream = {"decoding_chunk_size": 8, "simulate_streaming": True}
    first = [tensor[:1] for tensor in case.batch[:2]]
    assert_hypotheses(case, first, case.expected["hyps_stream_chunk8"], **stream)


@torch.no_grad()
@pytest.mark.parametrize("left", [-1, 1, 2])
@pytest.mark.parametrize(
    ("conf", "chunks"), [(CAUSAL, (6, 12)), (QUARTER, (12,)), ({**CAUSAL, "group_size": 2}, (4,))]
)
def test_streaming_equals_one_pass_for_multiples_of_the_unit_without_a_warning(
    make_encoder_model, conf, chunks, left, caplog
):
    model = make_encoder_model(KIND, conf)
    feats, lengths = torch.randn(1, 203, 40), torch.tensor([203])
    for chunk in chunks:
        assert chunk % model.encoder.traits.chunk_unit == 0
        masked, masked_lengths = model.encode(feats, lengths, chunk, left)
        streamed, streamed_lengths = model.encode(
            feats, lengths, chunk, left, simulate_streaming=True
        )
        assert torch.equal(streamed_lengths, masked_lengths)
        torch.testing.assert_close(streamed, masked, atol=1e-4, rtol=1e-4)
    assert caplog.messages == []


@torch.no_grad()
def test_other_chunks_give_one_warning_and_chunks_without_a_whole_frame_an_error(
    make_encoder_model, caplog
):
    model = make_encoder_model(KIND, CAUSAL)
    said_once.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            model.encode(torch.randn(1, 90, 40), torch.tensor([90]), 8, -1, simulate_streaming=True)
    assert [message[:47] for message in caplog.messages] == [
        "decoding_chunk_size 8 is not a multiple of 6: t"
    ]
    with pytest.raises(
        ValueError, match=r"decoding_chunk_size 5 is not a multiple of 2, .*: use a multiple of 6"
    ):
        model.encode(torch.randn(1, 90, 40), torch.tensor([90]), 5, -1, simulate_streaming=True)
    assert (fitting_chunk(model.encoder.traits, 16), fitting_chunk(model.encoder.traits, 18)) == (
        18,
        18,
    )


@torch.no_grad()
def test_a_cache_of_fixed_size_with_a_mask_gives_the_same_frames(make_encoder_model):
    model = make_encoder_model(KIND, CAUSAL)
    encoder, chunk, left = model.encoder, 6, 2
    feats = torch.randn(1, 203, 40)
    expected, _ = model.encode(feats, torch.tensor([203]), chunk, left)
    att_cache = torch.zeros(3, encoder.traits.heads, chunk * left, 2 * encoder.traits.head_dim)
    cnn_cache = torch.zeros(3, 1, encoder.traits.width, encoder.traits.cnn_cache_frames)
    for number in range(4):
        window = feats[:, 24 * number : 24 * number + 27]
        heard = (torch.arange(chunk * (left + 1)) >= chunk * (left - number)).view(1, 1, -1)
        output, att_cache, cnn_cache = encoder.forward_chunk(
            window, 3 * number, 12, att_cache, cnn_cache, heard
        )
        torch.testing.assert_close(
            output, expected[:, 3 * number : 3 * number + 3], atol=1e-4, rtol=1e-4
        )


@torch.no_grad()
def test_a_model_that_is_not_causal_names_the_obstacle(make_encoder_model):
    model = make_encoder_model(
        KIND, {**GROUPS, "stride_kernel": False, "cnn_module_kernel": 5, "use_dynamic_chunk": 1}
    )
    with pytest.raises(
        ValueError, match="simulate_streaming: .*sees future frames; train with causal: true"
    ):
        model.encode(torch.randn(1, 80, 40), torch.tensor([80]), 6, 2, simulate_streaming=True)


@pytest.mark.parametrize(
    "conf", [CAUSAL, QUARTER, {**CAUSAL, "normalize_before": False, "macaron_style": False}]
)
def test_every_weight_that_is_not_frozen_learns(make_encoder_model, conf):
    model = make_encoder_model(KIND, conf).train()
    model(*BATCH)["loss"].backward()
    idle = [
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad and weight.grad is None
    ]
    assert idle == []


@torch.no_grad()
def test_lengths_round_up_and_frames_last_longer(make_encoder_model):
    model = make_encoder_model(KIND, QUARTER)
    encoder_out, lengths = model.encode(torch.randn(3, 87, 40), torch.tensor([87, 70, 3]))
    # 21, 16 and 0 frames of the input layer
    assert (encoder_out.size(1), lengths.tolist()) == (
        6,
        [6, 4, 0],
    )
    clock = FrameClock.of(model, parse_config({}, "test").dataset_conf)
    assert clock.step == pytest.approx(0.16)
    # The middle of what frame 0 sees
    assert clock.middle(0) == pytest.approx((0.06 + 0.12 + 0.025) / 2)


@torch.no_grad()
def test_streams_of_different_lengths_advance_together(make_encoder_model):
    model = make_encoder_model(KIND, CAUSAL)
    feats = [torch.randn(1, frames, 40) for frames in (203, 90, 3)]
    streams = [ChunkEncoder(model.encoder, 6, 2) for _ in feats]
    for stream, each in zip(streams, feats, strict=True):
        found = stream.accept(each, last=True)
        if each.size(1) > 3:
            assert_close(found, model.encode(each, torch.tensor([each.size(1)]), 6, 2)[0])
        assert stream.offset == found.size(1)


def test_efficient_conf_is_saved_as_keys_that_wenet_takes(tmp_path):
    inner = {
        "stride_layer_idx": [1],
        "stride": [2],
        "group_layer_idx": [0],
        "group_size": 4,
        "stride_kernel": False,
    }
    conf = {"num_blocks": 3, "efficient_conf": inner}
    config = parse_config({"encoder": KIND, "encoder_conf": conf}, "a.yaml")
    save_config(config, tmp_path / "train.yaml")
    saved = read_yaml(tmp_path / "train.yaml")["encoder_conf"]
    assert {key: saved[key] for key in inner} == inner
    assert "efficient_conf" not in saved
    assert (
        parse_config({"encoder": KIND, "encoder_conf": saved}, "b.yaml").encoder_conf
        == config.encoder_conf
    )


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"num_blocks": 3}, "stride_layer_idx 3 is not below num_blocks 3"),
        ({"num_blocks": 4, "group_layer_idx": [4]}, "group_layer_idx 4 is not below num_blocks 4"),
        (
            {"stride_layer_idx": [1, 3]},
            "expected a rising list of blocks and a list of the same length",
        ),
        ({"stride_layer_idx": [3, 1], "stride": [2, 2]}, "expected a rising list of blocks"),
        ({"output_size": 30}, "output_size 30 is not divisible by attention_heads 4"),
        ({"cnn_module_kernel": 5}, "cnn_module_kernel of block 4: 2 is even"),
        ({"cnn_module_kernel": 1}, "cnn_module_kernel 1 leaves no frame for block 4"),
        ({"use_cnn_module": False}, "encoder_conf.use_cnn_module: .*found False"),
        ({"pos_enc_layer_type": "abs_pos"}, "encoder_conf.pos_enc_layer_type: .*found 'abs_pos'"),
        ({"efficient_conf": {"group_siz": 3}}, "unknown key; did you mean 'group_size'"),
        ({"efficient_conf": 3}, "efficient_conf: expected a section with keys, found 3"),
        (
            {"group_size": 3, "efficient_conf": {"group_size": 3}},
            "in encoder_conf and in efficient_conf: group_size",
        ),
        ({"use_dynamic_left_chunk": True}, "needs use_dynamic_chunk"),
    ],
)
def test_invalid_values_are_refused_in_one_line(conf, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_config({"encoder": KIND, "encoder_conf": conf}, "test.yaml")
    assert "\n" not in str(caught.value)
