"""The Zipformer computes what icefall computes with the same weights, streams as it encodes, and
trains.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.models.test_batches import ZIPFORMER, make_features, padded_batch, shake
from wenet_uio.addons.encoders.zipformer.modules import BiasNorm, swoosh_l, swoosh_r
from wenet_uio.addons.encoders.zipformer.regularisers import (
    Balancer,
    Whitener,
    kept_in_range,
    whiteness,
)
from wenet_uio.config import ConfigError, parse_config
from wenet_uio.models import ASRModel, build_model
from wenet_uio.models.clock import Clock, Clocked, Schedule, set_clocks

CAUSAL = {**ZIPFORMER, "causal": True, "chunk_size": [4, 8, -1], "left_context_frames": [8, -1]}


def make(encoder_conf: dict[str, Any], size: int = 50, **values: Any) -> ASRModel:
    values = {
        "encoder": "zipformer",
        "encoder_conf": encoder_conf,
        "decoder": "transformer",
        "decoder_conf": {"num_blocks": 1, "linear_units": 8, "attention_heads": 2},
        "model_conf": {"ctc_weight": 1.0},
        "tokenizer_conf": {"special_tokens": {"<sos>": 1, "<eos>": 1}},
        "input_dim": 80,
        "output_dim": size,
        **values,
    }
    return build_model(parse_config(values, "test")).eval()


def our_name(name: str) -> str:
    return name.replace("encoder_embed.", "encoder.embed.").replace("ctc_output.1.", "ctc.ctc_lo.")


@pytest.fixture(params=["zipformer", "zipformer_causal"])
def golden(request: pytest.FixtureRequest, golden2: Path) -> tuple[ASRModel, dict[str, Any]]:
    """A model of icefall with its weights, and its outputs."""
    folder = golden2 / request.param
    model = make(yaml.safe_load((folder / "config.yaml").read_text()), mask_padding=False)
    weights = torch.load(folder / "pretrained.pt", weights_only=True)["model"]
    others = {
        name: value for name, value in model.state_dict().items() if name.startswith("decoder.")
    }
    model.load_state_dict({our_name(name): value for name, value in weights.items()} | others)
    return model, torch.load(folder / "golden.pt", weights_only=True)


@torch.no_grad()
def test_outputs_are_those_of_icefall(golden: tuple[ASRModel, dict[str, Any]]) -> None:
    model, expected = golden
    feats, feats_lengths = expected["feats"], expected["feats_lengths"]
    embedded, _, lengths = model.encoder.embed.forward_batch(feats, feats_lengths)
    assert torch.equal(lengths, expected["embed_lengths"])
    # Without chunks if it is not causal
    found, found_lengths = model.encoder(feats, feats_lengths, 16, 4)
    assert torch.equal(found_lengths, expected["encoder_out_lengths"])
    for row, (before, after) in enumerate(zip(lengths, found_lengths, strict=True)):
        torch.testing.assert_close(
            embedded[row, :before], expected["embed"][row, :before], atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            found[row, :after], expected["encoder_out"][row, :after], atol=1e-5, rtol=1e-5
        )
        probs = model.ctc_log_probs(found)[row, :after]
        torch.testing.assert_close(
            probs, expected["ctc_log_probs"][row, :after], atol=1e-5, rtol=1e-5
        )


@torch.no_grad()
def test_streams_are_those_of_icefall(golden: tuple[ASRModel, dict[str, Any]]) -> None:
    model, expected = golden
    if "streaming" not in expected:
        pytest.skip("not causal")
    feats = expected["feats"][:1]
    streamed, _ = model.encode(feats, torch.tensor([237]), 16, 4, simulate_streaming=True)
    outputs = expected["streaming"]["outputs"]
    assert model.encoder.embed.subsampling_rate * 15 + model.encoder.embed.right_context + 1 == 45
    torch.testing.assert_close(streamed[:, : outputs.size(1)], outputs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", ["S", "M", "L"])
def test_the_published_sizes_have_the_published_parameters(
    size: str, golden2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for draw in ("uniform_", "normal_"):  # the values do not matter
        monkeypatch.setattr(torch.Tensor, draw, lambda self, *args, **kwargs: self)
    conf = json.loads((golden2 / "zipformer/sizes.json").read_text())[size]
    numbers = {name: conf.pop(name) for name in ("vocab", "parameters", "parameters_encoder")}
    model = make(conf, numbers["vocab"])
    embed = sum(weight.numel() for weight in model.encoder.embed.parameters())
    encoder = sum(weight.numel() for weight in model.encoder.parameters())
    assert encoder - embed == numbers["parameters_encoder"]
    assert (
        encoder + sum(weight.numel() for weight in model.ctc.parameters()) == numbers["parameters"]
    )


def test_activations_and_bias_norm_are_those_of_icefall(golden2: Path) -> None:
    expected = torch.load(golden2 / "scaled_adam/functions.pt", weights_only=True)
    x = expected["x"]
    for function, name in ((swoosh_l, "swoosh_l"), (swoosh_r, "swoosh_r")):
        torch.testing.assert_close(function(x), expected[name], atol=1e-6, rtol=1e-6)
        trained = x.double().requires_grad_()
        assert torch.autograd.gradcheck(function, (trained,))
    norm = BiasNorm(8).eval()
    norm.load_state_dict(
        {"bias": expected["biasnorm_bias"], "log_scale": expected["biasnorm_log_scale"]}
    )
    torch.testing.assert_close(
        norm(expected["biasnorm_in"]), expected["biasnorm_out"], atol=1e-6, rtol=1e-6
    )


@torch.no_grad()
@pytest.mark.parametrize(("chunk", "left"), [(4, -1), (4, 0), (8, 2), (16, 1)])
def test_streaming_equals_one_pass_with_a_chunk_mask(chunk: int, left: int) -> None:
    model = make({**CAUSAL, "downsampling_factor": [2, 4]}, input_dim=20)
    shake(model)
    for frames in (9, 38, 39, 77, 108, *((45 + 2 * chunk,) if left else ())):
        feats, lengths = torch.randn(1, frames, 20), torch.tensor([frames])
        masked, masked_lengths = model.encode(feats, lengths, chunk, left)
        streamed, streamed_lengths = model.encode(
            feats, lengths, chunk, left, simulate_streaming=True
        )
        assert torch.equal(streamed_lengths, masked_lengths)
        torch.testing.assert_close(streamed, masked, atol=1e-5, rtol=1e-5)


def test_chunks_of_other_sizes_and_models_that_see_the_future_are_refused() -> None:
    feats, lengths = torch.randn(1, 60, 20), torch.tensor([60])
    with pytest.raises(ValueError, match="6 is not a multiple of 4.*use a multiple of 4"):
        make({**CAUSAL, "downsampling_factor": [2, 4]}, input_dim=20).encode(
            feats, lengths, 6, 1, simulate_streaming=True
        )
    with pytest.raises(ValueError, match="trained with full context only"):
        make(ZIPFORMER, input_dim=20).encode(feats, lengths, 4, 1)


def loss_of(model: ASRModel, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    model.zero_grad()
    feats, lengths = (
        torch.randn(3, 60, 20, generator=torch.Generator().manual_seed(1)),
        torch.tensor([60, 50, 40]),
    )
    target = torch.tensor([[3, 4, 5], [6, 7, 8], [9, 3, 4]])
    loss = model(feats, lengths, target, torch.tensor([3, 3, 3]))["loss"]
    assert loss is not None
    loss.backward()
    return loss.detach()


def gradients(model: ASRModel) -> dict[str, torch.Tensor]:
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


@pytest.mark.parametrize("conf", [ZIPFORMER, CAUSAL], ids=["whole", "causal"])
def test_training_depends_on_seed_and_step_alone_and_reaches_every_weight(
    conf: dict[str, Any],
) -> None:
    model = make(conf, input_dim=20).train()
    assert len({id(module.clock) for module in model.modules() if isinstance(module, Clocked)}) == 1
    trained = {
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad and "decoder" not in name
    }
    losses = []
    for seed in range(3):  # the seeds draw chunks, skipped modules and masked channels
        set_clocks(model, 5)
        loss = loss_of(model, seed)
        first = gradients(model)
        assert first.keys() == trained  # engines exchange the gradients of all weights
        assert torch.equal(loss_of(model, seed), loss)
        assert all(torch.equal(value, first[name]) for name, value in gradients(model).items())
        set_clocks(model, 30000)
        losses += [loss, loss_of(model, seed)]
    assert len({round(float(loss), 5) for loss in losses}) == len(losses)


def test_recomputed_activations_give_the_same_gradients() -> None:
    kept, again = (
        make({**CAUSAL, "gradient_checkpointing": flag}, input_dim=20).train()
        for flag in (False, True)
    )
    again.load_state_dict(kept.state_dict())
    assert torch.equal(loss_of(kept, 3), loss_of(again, 3))
    expected = gradients(kept)
    for name, value in gradients(again).items():
        torch.testing.assert_close(value, expected[name])


def test_evaluation_does_not_depend_on_the_step() -> None:
    model = make(ZIPFORMER, input_dim=20)
    feats = padded_batch(make_features(model, [60, 60], 20))
    before = model.encode(*feats)[0]
    set_clocks(model, 7)
    assert torch.equal(model.encode(*feats)[0], before)


def test_a_schedule_is_linear_between_its_points_and_follows_the_speed_of_its_clock() -> None:
    clock = Clock(speed=0.5)
    schedule = Schedule(clock, (10.0, 1.0), (20.0, 0.0))
    values = []
    for clock.step in (0, 20, 30, 40, 100):
        values.append(schedule())
    assert values == [1.0, 1.0, 0.5, 0.0, 0.0]


def gradient_of(x: torch.Tensor) -> torch.Tensor:
    assert x.grad is not None
    return x.grad


def always(module: Any) -> Any:
    module.probability = lambda: 1.0
    module.PROBABILITY = 2.0
    return module.train()


@pytest.mark.parametrize("channel_dim", [1, -1])
def test_a_balancer_adds_the_gradient_of_its_loss(channel_dim: int) -> None:
    torch.manual_seed(0)
    x = (
        (torch.randn(4, 6, 7, 6) * 3 * torch.rand(6) + torch.randn(6))
        .transpose(1, channel_dim)
        .requires_grad_()
    )
    gradient = torch.randn_like(x)
    always(Balancer(Clock(), (0.4, 0.6), (0.8, 1.5), channel_dim))(x).backward(gradient)
    channels = x.detach().double().movedim(channel_dim, 0).flatten(1).requires_grad_()
    relative, rms = (
        channels.mean(1) / channels.std(1, correction=0),
        channels.square().mean(1).sqrt(),
    )
    limit = torch.atanh(torch.tensor(0.2)) / (torch.pi**0.5 * torch.log(torch.tensor(2.0)))
    size = (torch.pi / 2) ** 0.5
    loss = (relative - relative.clamp(-limit, limit)).abs() + (
        rms.clamp(0.8 * size, 1.5 * size) / rms
    ).log().abs()
    (more,) = torch.autograd.grad(loss.sum(), channels)
    more = 0.04 * more / more.square().mean(1, keepdim=True).sqrt().clamp(min=1e-20)
    more = more.unflatten(1, x.movedim(channel_dim, 0).shape[1:]).movedim(0, channel_dim)
    torch.testing.assert_close(
        gradient_of(x), (gradient + gradient.abs() * more).float(), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("spread", [0, 1e-9, 1e-4, 1e-3, 0.01])
@pytest.mark.parametrize("mean", [0, 1e-30, 1e-12, 1e-9, 1e-3, 1, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_balancer_adds_a_finite_gradient_to_zero_constant_and_tiny_channels(
    spread: float, mean: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = (mean * (1 + spread * torch.randn(2, 20, 3))).to(dtype).requires_grad_()
    always(Balancer(Clock(), (0.4, 0.6), (0.2, 10.0)))(x).backward(torch.ones_like(x))
    more = gradient_of(x).float() - 1
    assert more.square().mean().sqrt() < 0.042
    if mean >= 1e-9:  # the mean is above its limit
        assert more.mean() > (0.038 if spread < 1e-3 else 0.0)


def test_a_whitener_adds_a_gradient_only_above_its_limit() -> None:
    torch.manual_seed(0)
    x = (torch.randn(50, 8) @ torch.randn(8, 8)).requires_grad_()
    gradient = torch.randn_like(x)
    metric = float(whiteness(x.detach(), 1))
    always(Whitener(Clock(), metric + 0.1, metric + 0.1))(x).backward(gradient)
    assert torch.equal(gradient_of(x), gradient)
    x.grad = None
    always(Whitener(Clock(), metric - 0.1, metric - 0.1))(x).backward(gradient)
    added = gradient_of(x) - gradient
    torch.testing.assert_close(added.norm(), 0.01 * gradient.norm())
    assert whiteness(x - 1e-2 * added / added.norm(), 1) < metric


def test_weights_outside_of_their_range_are_pushed_back() -> None:
    weight = torch.tensor([0.0, 0.5, 2.0], requires_grad=True)
    kept_in_range(weight, 0.2, 1.0, probability=2.0).backward(torch.tensor([1.0, 1.0, -1.0]))
    assert gradient_of(weight).tolist() == [-1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"encoder_dim": [16, 16, 16]}, "encoder_dim has 3 numbers for 2 stacks"),
        ({"cnn_module_kernel": 8}, "cnn_module_kernel 8 is even"),
        ({"encoder_unmasked_dim": 20}, "encoder_unmasked_dim 20 is above encoder_dim 16"),
        ({"causal": True, "chunk_size": [5]}, "chunk_size 5: expected -1 or a multiple of 2"),
        ({"pos_dim": 13}, "pos_dim: .*multiple of 2"),
        ({"num_layers": 3}, "num_layers: unknown key; did you mean 'num_encoder_layers'"),
    ],
)
def test_impossible_sizes_are_refused(conf: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make({**ZIPFORMER, **conf})


def test_sizes_may_be_written_as_on_the_command_line_of_icefall() -> None:
    lists = {
        name: ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in ZIPFORMER.items()
    }
    assert make(lists).state_dict().keys() == make(ZIPFORMER).state_dict().keys()


def test_a_transducer_and_an_attention_decoder_train_on_its_frames(
    make_model: Callable[..., ASRModel],
) -> None:
    keys = {"predictor_conf": {"embed_size": 8, "output_size": 8}, "joint_conf": {"join_dim": 8}}
    weights = {"transducer_weight": 0.5, "ctc_weight": 0.3, "attention_weight": 0.2}
    model = make(
        ZIPFORMER, 12, input_dim=20, model="transducer", model_conf=weights, **keys
    ).train()
    assert torch.isfinite(loss_of(model, 0))
    model = make(ZIPFORMER, 12, input_dim=20, model_conf={"ctc_weight": 0.3}).train()
    assert torch.isfinite(loss_of(model, 0))
