"""Transducer: the loss equals a sum over all paths; predictors and joint follow their papers."""

from __future__ import annotations

import itertools

import pytest
import torch

from wenet_uio.config import ConfigError, parse_config
from wenet_uio.families.transducer.predictor import PREDICTORS
from wenet_uio.models import build_model

WIDTHS = {"embed_size": 12, "output_size": 12}
PREDICTOR_CONFS = {
    "rnn": {**WIDTHS, "hidden_size": 10, "output_size": 8},
    "embedding": {**WIDTHS, "n_head": 3, "history_size": 2},
    "conv": {**WIDTHS, "history_size": 1},
}
KINDS = {
    "rnn": ("rnn", {}),
    "embedding": ("embedding", {}),
    "conv": ("conv", {}),
    "postjoin": ("rnn", {"postjoin_linear": True}),
    "no prejoin": ("embedding", {"prejoin_linear": False, "join_dim": 12}),
    "hat": ("conv", {"hat_joint": True}),
}
VOCAB = 5


def make(kind: str, vocab: int = VOCAB, **weights: float):
    torch.manual_seed(0)
    predictor, joint = KINDS[kind]
    values = {
        "encoder": "transformer",
        "encoder_conf": {
            "output_size": 12,
            "attention_heads": 2,
            "linear_units": 16,
            "num_blocks": 1,
        },
        "decoder": "transformer",
        "decoder_conf": {"attention_heads": 2, "linear_units": 16, "num_blocks": 1},
        "predictor": predictor,
        "predictor_conf": PREDICTOR_CONFS[predictor],
        "joint": "transducer_joint",
        "joint_conf": {"join_dim": 14, **joint},
        "model": "transducer",
        "model_conf": weights
        or {"transducer_weight": 0.5, "ctc_weight": 0.2, "attention_weight": 0.3},
        "tokenizer_conf": {"special_tokens": {"<sos>": vocab - 1, "<eos>": vocab - 1}},
        "input_dim": 20,
        "output_dim": vocab,
    }
    return build_model(parse_config(values, "test")).eval()


def enumerated(log_probs: torch.Tensor, labels: list[int]) -> torch.Tensor:
    """-log of the sum over all paths through the lattice log_probs (T, U + 1, V).

    A path has T blanks and U labels in any order, but ends with a blank.
    """
    frames, tokens = log_probs.size(0), len(labels)
    paths = []
    for places in itertools.combinations(range(frames + tokens - 1), tokens):
        t = u = 0
        score = log_probs.new_zeros(())
        for step in range(frames + tokens):
            if step in places:
                score = score + log_probs[t, u, labels[u]]
                u += 1
            else:
                score = score + log_probs[t, u, 0]
                t += 1
        paths.append(score)
    return -torch.stack(paths).logsumexp(dim=0)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_equal_those_of_the_sum_over_all_paths(kind):
    model = make(kind)
    encoder_out = torch.randn(3, 4, 12, requires_grad=True)
    lengths, target_lengths = torch.tensor([4, 3, 2]), torch.tensor([3, 1, 2])
    target = torch.tensor([[1, 1, 3], [2, -1, -1], [4, 3, -1]])
    found = model.rnnt_loss(encoder_out, lengths, target, target_lengths)

    one_by_one = []
    for row, (frames, tokens) in enumerate(
        zip(lengths.tolist(), target_lengths.tolist(), strict=True)
    ):
        labels = target[row, :tokens].tolist()
        predicted, _ = model.predictor(torch.tensor([[0, *labels]]), model.predictor.start(1))
        scores = torch.stack(
            [model.joint(encoder_out[row, t], predicted[0]) for t in range(frames)]
        )
        one_by_one.append(enumerated(scores.log_softmax(dim=2), labels))
    expected = torch.stack(one_by_one).mean()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)

    weights = [weight for part in (model.predictor, model.joint) for weight in part.parameters()]
    weights = [encoder_out, *(weight for weight in weights if weight.requires_grad)]
    for ours, theirs in zip(
        torch.autograd.grad(found, weights, allow_unused=True),
        torch.autograd.grad(expected, weights, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_an_utterance_without_frames_has_loss_0_and_empty_texts_are_all_blank():
    model = make("rnn")
    encoder_out = torch.randn(2, 3, 12, requires_grad=True)
    target = torch.full((2, 2), -1)
    both = model.rnnt_loss(encoder_out, torch.tensor([3, 0]), target, torch.tensor([0, 0]))
    predicted, _ = model.predictor(torch.tensor([[0]]), model.predictor.start(1))
    blanks = model.joint(encoder_out[0], predicted[0]).log_softmax(dim=1)[:, 0]
    torch.testing.assert_close(both, -blanks.sum() / 2)
    both.backward()
    assert not encoder_out.grad[1].any()


@torch.no_grad()
@pytest.mark.parametrize("kind", PREDICTORS)
def test_one_token_at_a_time_gives_the_outputs_of_all_tokens_at_once(kind):
    predictor = make(kind).predictor
    tokens = torch.randint(0, VOCAB, (3, 6))
    together, end = predictor(tokens, predictor.start(3))
    state, outputs = predictor.start(3), []
    for token in tokens.unbind(dim=1):
        output, state = predictor(token.unsqueeze(1), state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), together)
    for one, other in zip(state, end, strict=True):
        torch.testing.assert_close(one, other)


@torch.no_grad()
def test_embedding_predictor_is_the_mean_over_heads_and_places():
    predictor = make("embedding").predictor
    tokens = torch.tensor([[0, 3, 2, 4]])
    found, _ = predictor(tokens, predictor.start(1))
    window, dim, heads = predictor.window, 12, predictor.heads
    embedded = torch.cat((torch.zeros(window - 1, dim), predictor.embed(tokens)[0]))
    places = predictor.pos_embed.weight.view(heads, dim, window)
    for step in range(4):
        mean = torch.zeros(dim)
        for head in range(heads):
            for place in range(window):
                x = embedded[step + place]
                mean += (x @ places[head, :, place]) * x / (heads * window)
        expected = predictor.activation(predictor.norm(predictor.ffn(mean)))
        torch.testing.assert_close(found[0, step], expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_the_outputs_of_a_hat_joint_are_a_distribution():
    model = make("hat")
    scores = model.joint(torch.randn(6, 12), torch.randn(6, 12))
    torch.testing.assert_close(scores.logsumexp(dim=1), torch.zeros(6), atol=1e-5, rtol=0)


def test_the_loss_is_the_weighted_sum_of_three_losses():
    model = make("rnn")
    batch = (
        torch.randn(2, 60, 20),
        torch.tensor([60, 50]),
        torch.tensor([[1, 2], [3, -1]]),
        torch.tensor([2, 1]),
    )
    losses = model(*batch)
    parts = 0.5 * losses["loss_rnnt"] + 0.2 * losses["loss_ctc"] + 0.3 * losses["loss_att"]
    torch.testing.assert_close(losses["loss"], parts)
    assert model.loss_names == ("loss", "loss_att", "loss_ctc", "loss_rnnt", "th_accuracy")
    alone = make("rnn", transducer_weight=1.0)
    losses = alone(*batch)
    assert (losses["loss_ctc"], losses["loss_att"]) == (None, None)
    assert alone.loss_names == ("loss", "loss_rnnt")
    torch.testing.assert_close(losses["loss"], losses["loss_rnnt"])
    losses["loss"].backward()
    idle = {name.split(".")[0] for name, weight in alone.named_parameters() if weight.grad is None}
    assert idle == {"ctc", "decoder"}


def test_text_without_audio_trains_only_the_attention_decoder():
    losses = make("rnn")(
        torch.zeros(2, 0, 20), torch.zeros(2), torch.tensor([[1, 2], [3, -1]]), torch.tensor([2, 1])
    )
    assert (losses["loss_rnnt"], losses["loss_ctc"]) == (None, None)
    torch.testing.assert_close(losses["loss"], losses["loss_att"])


@pytest.mark.third
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_steps_fit_a_batch(kind):
    model = make(kind).train()
    optimizer = torch.optim.Adam(
        [weight for weight in model.parameters() if weight.requires_grad], lr=5e-3
    )
    batch = (
        torch.randn(2, 60, 20),
        torch.tensor([60, 50]),
        torch.tensor([[1, 2], [3, -1]]),
        torch.tensor([2, 1]),
    )
    losses = []
    for _ in range(30):
        loss = model(*batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    idle = [
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad and weight.grad is None
    ]
    assert idle == []


def test_bfloat16_autocast_trains():
    model = make("rnn").train()
    batch = (
        torch.randn(2, 60, 20),
        torch.tensor([60, 50]),
        torch.tensor([[1, 2], [3, -1]]),
        torch.tensor([2, 1]),
    )
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(*batch)
    assert losses["loss"].dtype == torch.float32
    losses["loss"].backward()
    assert all(
        weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None
    )


def test_weights_have_wenets_names():
    names = {name for name in make("rnn").state_dict() if name.startswith(("predictor", "joint"))}
    lstm = {
        f"predictor.rnn.{kind}_{part}h_l{layer}"
        for kind in ("weight", "bias")
        for part in ("i", "h")
        for layer in (0, 1)
    }
    both = ("predictor.projection", "joint.enc_ffn", "joint.pred_ffn", "joint.ffn_out")
    linear = {f"{module}.{kind}" for module in both for kind in ("weight", "bias")}
    assert names == {"predictor.embed.weight", *lstm, *linear}
    embedding = {name for name in make("embedding").state_dict() if name.startswith("predictor")}
    assert embedding == {
        "predictor.embed.weight",
        "predictor.pos_embed.weight",
        *(
            f"predictor.{module}.{kind}"
            for module in ("ffn", "norm")
            for kind in ("weight", "bias")
        ),
    }
    conv = {name for name in make("hat").state_dict() if name.startswith(("predictor", "joint"))}
    assert {"predictor.conv.weight", "predictor.norm.bias"} < conv
    assert {"joint.blank_pred.2.weight", "joint.token_pred.2.bias"} < conv


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"predictor": "lstm"}, "predictor: .*known: rnn, embedding, conv"),
        ({"predictor_conf": {"rnn_type": "gru"}}, "predictor_conf.rnn_type: .*'lstm'"),
        ({"predictor_conf": {"history_size": 2}}, "predictor_conf.history_size: unknown key"),
        (
            {"predictor": "conv", "predictor_conf": {"embed_size": 4}},
            "embed_size 4 and output_size 256 must be the",
        ),
        ({"joint_conf": {"joint_dim": 4}}, "did you mean 'join_dim'"),
        (
            {"model_conf": {"transducer_weight": 0.5}},
            r"transducer_weight \+ ctc_weight \+ attention_weight is 0.5",
        ),
        ({"model_conf": {"enable_k2": True}}, "model_conf.enable_k2"),
        ({"model": "transduser"}, "did you mean 'transducer'"),
    ],
)
def test_invalid_values_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"model": "transducer", **values}, "test.yaml")


@pytest.mark.parametrize(
    ("joint", "message"),
    [
        ({"pred_output_size": 9}, r"joint_conf\.pred_output_size is 9, but the width is 256"),
        (
            {"prejoin_linear": False},
            "false needs equal widths, found encoder 8, predictor 256, join_dim",
        ),
    ],
)
def test_widths_that_do_not_match_are_refused(joint, message):
    values = {
        "model": "transducer",
        "encoder": "transformer",
        "encoder_conf": {"output_size": 8, "num_blocks": 1},
        "joint_conf": joint,
        "tokenizer_conf": {"special_tokens": {"<sos>": 3, "<eos>": 3}},
        "input_dim": 20,
        "output_dim": 4,
    }
    with pytest.raises(ValueError, match=message):
        build_model(parse_config(values, "test"))
