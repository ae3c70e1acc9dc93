"""The loss of a CTC layer, over all units or over those that it uses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.support.train.tiny import CPU, small_config, tiny_batch
from wenet_uio.config import ConfigError, parse_config
from wenet_uio.export.chunks import OFFLINE, Chunks, check_chunks
from wenet_uio.export.torchscript import to_torchscript
from wenet_uio.models import build_model
from wenet_uio.models.ctc import CTC
from wenet_uio.models.encoders.conformer.encoder import ConformerEncoder
from wenet_uio.models.lengths import embedded_lengths, lengths_between
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.validation import validate

UNITS, DIM, BLANK = 40, 6, 3
USED = (1, 7, 8, 30)
LENGTHS = torch.tensor([12, 9, 5])
TARGETS = torch.tensor([[7, 1, 7, 30], [8, 8, -1, -1], [1, -1, -1, -1]])
TARGET_LENGTHS = torch.tensor([4, 2, 1])

Loss = Callable[[CTC, torch.Tensor], torch.Tensor]


def restricted() -> CTC:
    """A CTC layer that uses a few units."""
    torch.manual_seed(0)
    ctc = CTC(UNITS, DIM, BLANK)
    ctc.use_only(USED)
    return ctc


def over_all_units(of: CTC) -> CTC:
    """A layer with the same weights that computes its loss over all units."""
    ctc = CTC(UNITS, DIM, BLANK)
    ctc.load_state_dict(of.state_dict())
    return ctc


def loss(ctc: CTC, frames: torch.Tensor) -> torch.Tensor:
    return ctc(frames, LENGTHS, TARGETS, TARGET_LENGTHS)


def loss_of_views(ctc: CTC, frames: torch.Tensor) -> torch.Tensor:
    repeated = [torch.cat((x, x)) for x in (LENGTHS, TARGETS, TARGET_LENGTHS)]
    losses = ctc.losses_of_views(torch.cat((frames, frames + 0.1)), *repeated)
    return losses[0] + losses[1]


@pytest.mark.parametrize("of", [loss, loss_of_views])
def test_the_loss_over_the_used_units_is_that_over_all_with_its_gradient(of: Loss) -> None:
    ctc = restricted()
    every = over_all_units(ctc)
    frames = torch.randn(3, 12, DIM)
    results = []
    for layer in (ctc, every):
        x = frames.clone().requires_grad_()
        value = of(layer, x)
        value.backward()
        results.append((value, x.grad, layer.ctc_lo.weight.grad, layer.ctc_lo.bias.grad))

    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_search_never_finds_an_unused_unit() -> None:
    ctc = restricted()
    probable = ctc.log_softmax(torch.randn(50, 12, DIM)).exp().sum(dim=(0, 1)) > 0
    assert set(probable.nonzero()[:, 0].tolist()) == {BLANK, *USED}


def test_an_utterance_with_an_unused_unit_has_loss_0_and_no_gradient() -> None:
    ctc = restricted()
    frames = torch.randn(3, 12, DIM, requires_grad=True)
    expected = loss(ctc, frames)
    target = torch.cat((TARGETS, torch.full((1, 4), -1)))
    target[3, :2] = torch.tensor([1, 20])
    frames = torch.cat((frames.detach(), torch.randn(1, 12, DIM))).requires_grad_()
    lengths = torch.cat((LENGTHS, torch.tensor([12])))
    found = ctc(frames, lengths, target, torch.cat((TARGET_LENGTHS, torch.tensor([2]))))
    torch.testing.assert_close(found * 4, expected * 3)
    found.backward()
    assert frames.grad is not None
    assert frames.grad[3].abs().max() == 0.0


def test_a_layer_that_is_moved_knows_its_units_on_the_new_device() -> None:
    ctc, frames = restricted(), torch.randn(3, 12, DIM)
    expected = loss(ctc, frames)
    used = ctc._used_units()
    assert used is not None
    ctc._used = used._replace(units=used.units.to("meta"), places=used.places.to("meta"))
    torch.testing.assert_close(loss(ctc, frames), expected)


def test_a_resumed_layer_uses_the_units_of_the_state_that_it_loads() -> None:
    ctc = CTC(UNITS, DIM, BLANK)
    ctc.learn_used()
    frames = torch.randn(3, 12, DIM)
    loss(ctc, frames)  # over all units
    of_run = restricted()
    ctc.load_state_dict(of_run.state_dict())
    torch.testing.assert_close(loss(ctc, frames), loss(of_run, frames))
    used = ctc._used_units()
    assert used is not None
    assert used.units.tolist() == sorted({BLANK, *USED})


def test_utterances_without_a_loss_are_told_after_the_first_loss() -> None:
    ctc = restricted()
    target = torch.cat((TARGETS, torch.full((1, 4), -1)))
    target[3, :2] = torch.tensor([1, 20])
    lengths = torch.cat((TARGET_LENGTHS, torch.tensor([2])))
    assert ctc.lacks_loss(target, lengths).tolist() == [False] * 4  # not known yet
    loss(ctc, torch.randn(3, 12, DIM))
    assert ctc.lacks_loss(target, lengths).tolist() == [False, False, False, True]
    target[0, 0], lengths[0] = 20, 0
    assert ctc.lacks_loss(target, lengths).tolist() == [False, False, False, True]

    every = CTC(UNITS, DIM, BLANK)
    loss(every, torch.randn(3, 12, DIM))
    assert not every.lacks_loss(target, lengths).any()


def test_a_layer_that_used_other_units_learns_the_new_ones() -> None:
    ctc = restricted()
    assert ctc.count_used() == len(USED)
    assert ctc.use_only(USED) == 0
    assert ctc.use_only((1, 20, 21)) == 2
    assert ctc.count_used() == 3
    biases, before = ctc.ctc_lo.bias.detach(), restricted().ctc_lo.bias.detach()
    assert torch.equal(biases[[1, BLANK]], before[[1, BLANK]])
    lowest = float(before[[*USED, BLANK]].min())
    assert biases[[20, 21]].tolist() == [lowest, lowest]

    frames = torch.randn(1, 12, DIM)
    value = ctc(frames, LENGTHS[:1], torch.tensor([[20, 21, 1]]), torch.tensor([3]))
    value.backward()
    assert 0 < value < 1000
    assert ctc.ctc_lo.bias.grad is not None
    assert (ctc.ctc_lo.bias.grad != 0).nonzero()[:, 0].tolist() == sorted([BLANK, 1, 20, 21])


WIDTH, VOCAB = 16, 7
PLAIN = {"output_size": WIDTH, "attention_heads": 2, "num_blocks": 4}
DROPLESS = {"dropout_rate": 0.0, "positional_dropout_rate": 0.0}
LAYERS = {**PLAIN, **DROPLESS, "linear_units": 32}
CONV = {**LAYERS, "cnn_module_kernel": 7, "cnn_module_norm": "layer_norm"}
SQUEEZE = {
    **PLAIN,
    "encoder_dim": WIDTH,
    "cnn_norm_type": "layer_norm",
    "reduce_idx": 1,
    "recover_idx": 3,
}
NO_DROPOUT = (
    "input_dropout_rate",
    "feed_forward_dropout_rate",
    "attention_dropout_rate",
    "dropout",
)
ENCODERS = {
    "conformer": CONV,
    "transformer": LAYERS,
    "branchformer": {**PLAIN, **DROPLESS, "cgmlp_linear_units": 32, "cgmlp_conv_kernel": 7},
    "e_branchformer": {
        **LAYERS,
        "cgmlp_linear_units": 32,
        "cgmlp_conv_kernel": 7,
        "merge_conv_kernel": 3,
    },
    "squeezeformer": {**SQUEEZE, "cnn_module_kernel": 7, **dict.fromkeys(NO_DROPOUT, 0.0)},
    "efficientConformer": {
        **CONV,
        "cnn_module_norm": "layer_norm",
        "stride_layer_idx": [1],
        "stride": [2],
        "group_layer_idx": [0],
        "group_size": 3,
    },
}
STREAMING = {**CONV, "causal": True, "use_dynamic_chunk": True}


def make(encoder="conformer", conf=None, **keys):
    values = {
        "encoder": encoder,
        "encoder_conf": conf or ENCODERS[encoder],
        "decoder": "transformer",
        "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1, **DROPLESS},
        "model_conf": {"ctc_weight": 0.4},
        "tokenizer_conf": {"special_tokens": {"<sos>": VOCAB - 1, "<eos>": VOCAB - 1}},
        "input_dim": 20,
        "output_dim": VOCAB,
        **keys,
    }
    torch.manual_seed(1)
    return build_model(parse_config(values, "test"))


def batch():
    generator = torch.Generator().manual_seed(2)
    feats = torch.randn(3, 97, 20, generator=generator)
    return (
        feats,
        torch.tensor([97, 61, 43]),
        torch.tensor([[1, 2], [4, -1], [5, -1]]),
        torch.tensor([2, 1, 1]),
    )


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_loss_is_that_of_the_frames_after_the_blocks(encoder):
    inter, plain = (
        make(encoder, interctc_layer_idx=[1, 2], interctc_weight=0.25).eval(),
        make(encoder).eval(),
    )
    assert inter.state_dict().keys() == plain.state_dict().keys()
    feats, lengths, target, target_lengths = batch()
    seen = {}
    for block in (1, 2):
        layer = plain.encoder.encoders[block - 1]
        layer.register_forward_hook(
            lambda _, given, made, block=block: seen.update({block: (given[3], made[0])})
        )
    expected = plain(feats, lengths, target, target_lengths)
    found = inter(feats, lengths, target, target_lengths)
    assert found["loss_ctc"].item() == expected["loss_ctc"].item()
    each = []
    for padded, x in seen.values():
        frames = plain.encoder.after_norm(x) if plain.encoder.normalize_before else x
        step = 2 if x.size(1) < padded.size(1) else 1
        each.append(
            plain.ctc(frames, (~padded[:, ::step]).sum((1, 2)), target, target_lengths).item()
        )
    assert found["loss_interctc"].item() == pytest.approx(sum(each) / 2, rel=1e-6)
    ctc = 0.75 * expected["loss_ctc"].item() + 0.25 * sum(each) / 2
    assert found["loss"].item() == pytest.approx(
        0.4 * ctc + 0.6 * expected["loss_att"].item(), rel=1e-6
    )
    assert set(inter.loss_names) == {*plain.loss_names, "loss_interctc"}


@torch.no_grad()
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("more", [0, 1, 5])
def test_lengths_on_the_cpu_are_those_of_the_frames_after_each_block(encoder, more):
    model = make(encoder, interctc_layer_idx=[1, 2, 3]).eval()
    lengths = torch.arange(60) + 1
    feats = torch.randn(60, 60 + more, 20)
    _, _, between = model.encoder.encode_between(feats, lengths)
    embedded = embedded_lengths(model.encoder, lengths, feats.size(1))
    on_cpu = lengths_between(model.encoder, between, embedded)
    assert [output.lengths.tolist() for output in on_cpu] == [
        output.lengths.tolist() for output in between
    ]
    assert len(between) == 3


@pytest.mark.parametrize("encoder", ENCODERS)
def test_without_conditioning_decoding_does_not_change(encoder):
    inter, plain = make(encoder, interctc_layer_idx=[2]).eval(), make(encoder).eval()
    inter.load_state_dict(plain.state_dict())
    feats, lengths, *_ = batch()
    assert torch.equal(inter.encode(feats, lengths)[0], plain.encode(feats, lengths)[0])
    assert inter.encoder.traits.obstacle == plain.encoder.traits.obstacle


@pytest.mark.parametrize("encoder", ENCODERS)
def test_with_conditioning_the_next_block_sees_the_posteriors(encoder):
    model = make(encoder, interctc_layer_idx=[2], interctc_conditioning=True).eval()
    plain = make(encoder).eval()
    weights = model.state_dict()
    layer = torch.nn.Linear(VOCAB, WIDTH)
    layer.load_state_dict(
        {name: weights.pop(f"encoder.conditioning_layer.{name}") for name in ("weight", "bias")}
    )
    plain.load_state_dict(weights)
    feats, lengths, *_ = batch()
    unconditioned = plain.encode(feats, lengths)[0]

    def condition(_, given, made):
        frames = plain.encoder.after_norm(made[0]) if plain.encoder.normalize_before else made[0]
        return (made[0] + layer(plain.ctc_log_probs(frames).exp()), *made[1:])

    plain.encoder.encoders[1].register_forward_hook(condition)
    found = model.encode(feats, lengths)[0]
    torch.testing.assert_close(found, plain.encode(feats, lengths)[0], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, unconditioned, atol=1e-3)


def test_a_conditioned_model_gives_an_utterance_the_same_frames_alone_and_in_a_batch():
    model = make(interctc_layer_idx=[1, 3], interctc_conditioning=True).eval()
    feats, lengths, *_ = batch()
    together = model.encode(feats, lengths)[0]
    alone, frames = model.encode(feats[2:, :43], lengths[2:])
    torch.testing.assert_close(together[2:, : int(frames)], alone, rtol=1e-4, atol=1e-5)


def test_a_conditioned_model_neither_streams_nor_has_torchscript_and_says_so_in_a_line():
    model = make(conf=STREAMING, interctc_layer_idx=[2], interctc_conditioning=True).eval()
    feats, lengths, *_ = batch()
    reason = "interctc_conditioning feeds predictions between blocks, which chunks with caches do not; train without it"
    for refused in (
        lambda: model.encode(feats, lengths, 8, simulate_streaming=True),
        lambda: check_chunks(model, Chunks(8, 4)),
        lambda: to_torchscript(model),
    ):
        with pytest.raises(ValueError, match=reason) as error:
            refused()
        assert "\n" not in str(error.value)
    masked = model.encode(feats, lengths, 8)[0]  # a chunk mask needs no caches
    assert masked.shape == model.encode(feats, lengths)[0].shape


def test_a_conditioned_model_is_exported_for_whole_utterances():
    from wenet_uio.addons.runtimes.onnx_graphs import sherpa_graph

    model = make(interctc_layer_idx=[2], interctc_conditioning=True).eval()
    graph = sherpa_graph(model, 20, OFFLINE)
    feats, lengths, *_ = batch()
    found, _ = graph.module(feats, lengths)
    torch.testing.assert_close(
        found, model.ctc_log_probs(model.encode(feats, lengths)[0]), rtol=1e-4, atol=1e-5
    )


def test_an_unconditioned_model_streams_and_has_torchscript():
    model = make(conf=STREAMING, interctc_layer_idx=[2]).eval()
    feats, lengths, *_ = batch()
    streamed = model.encode(feats, lengths, 8, simulate_streaming=True)[0]
    torch.testing.assert_close(
        streamed, model.encode(feats, lengths, 8)[0][:, : streamed.size(1)], rtol=1e-4, atol=1e-4
    )
    assert to_torchscript(model)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_and_validation_report_the_loss(checkpointing):
    encoder = {**small_config().encoder_conf.model_dump(), "gradient_checkpointing": checkpointing}
    config = small_config(encoder_conf=encoder, interctc_layer_idx=[1], interctc_conditioning=True)
    engine = DdpEngine(build_model(config), config, CPU, seed=1)
    engine.connect()
    given = tiny_batch([60, 40], 1, tokens=2)
    trained = engine.step([given], 1, {}).sums
    assert trained["loss_interctc"] > 0
    assert all(weight.grad is None for weight in engine.model.parameters())
    validated = validate(engine, [given], lambda: False)
    assert validated is not None
    assert validated["loss_interctc"] > 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"interctc_layer_idx": [4]},
            r"interctc_layer_idx \[4\]: expected rising numbers from 1 to 3, below num_blocks 4",
        ),
        ({"interctc_layer_idx": [2, 1]}, "expected rising numbers"),
        ({"interctc_layer_idx": [0]}, "interctc_layer_idx"),
        ({"interctc_layer_idx": [2], "model_conf": {"ctc_weight": 0.0}}, "there is no CTC loss"),
        (
            {"interctc_layer_idx": [2], "model": "ctl_model", "conf": STREAMING},
            "ctl_model has no CTC loss in the middle",
        ),
        (
            {"ctc_label_smoothing": 0.1, "model_conf": {"ctc_weight": 0.0}},
            "ctc_label_smoothing: there is no CTC loss",
        ),
        ({"interctc_conditioning": True}, "interctc_conditioning: it needs interctc_layer_idx"),
        ({"interctc_layer_idx": [2], "interctc_weight": 1.0}, "interctc_weight"),
    ],
)
def test_blocks_that_cannot_have_a_loss_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        make(**keys)


def test_layers_of_another_width_than_the_ctc_layer_are_refused():
    conf = {**ENCODERS["squeezeformer"], "encoder_dim": 8}
    with pytest.raises(ValueError, match="the layers have the width 8 and the CTC layer 16"):
        make("squeezeformer", conf, interctc_layer_idx=[2])


def test_an_encoder_that_computes_its_frames_in_another_way_is_refused(monkeypatch):
    monkeypatch.setattr(ConformerEncoder, "forward", lambda self, *given: given)
    with pytest.raises(
        ValueError, match="interctc_layer_idx: encoder conformer has no CTC loss in the middle"
    ):
        make(interctc_layer_idx=[2])
