"""With the weights of WeNet's Paraformers and SANM encoders, our models compute the numbers of
WeNet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.models.golden import assert_close
from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.addons.encoders.sanm.encoder import low_frame_rate
from wenet_uio.addons.families.paraformer.model import Paraformer
from wenet_uio.config import DatasetConf, load_config, parse_config
from wenet_uio.models import build_model
from wenet_uio.models.masks import length_mask
from wenet_uio.models.weights import load_weights
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.recogniser import streaming_obstacle

PARAFORMERS = ("paraformer", "paraformer_dynamic")
CHUNKS = ((4, -1), (8, 2), (16, 4))
MODES = (
    "paraformer_greedy_search",
    "paraformer_beam_search",
    "ctc_greedy_search",
    "ctc_prefix_beam_search",
)
"""The modes in which WeNet decodes its Paraformers."""
SILENT = {0, 1, 2}
"""<blank>, <sos> and <eos>; WeNet has them in its hypotheses and not in its texts."""


@cache
def golden(folder: Path) -> tuple[Any, dict[str, Any], dict[str, torch.Tensor]]:
    """A model that lets padding in as WeNet does, what WeNet computes with it, and its weights."""
    config = load_config(folder / "train.yaml", ["mask_padding=false"], of_model=True)
    model = build_model(config)
    load_weights(model, folder / "final.pt")
    expected = torch.load(folder / "golden.pt", weights_only=True)
    return model, expected, torch.load(folder / "final.pt", weights_only=True)


@pytest.fixture
def sanm(golden2: Path) -> tuple[Any, dict[str, Any], dict[str, torch.Tensor]]:
    model, expected, state = golden(golden2 / "sanm_encoder")
    return model.eval(), expected, state


@pytest.fixture(params=PARAFORMERS)
def case(
    request: pytest.FixtureRequest, golden2: Path
) -> tuple[Paraformer, dict[str, Any], dict[str, torch.Tensor]]:
    model, expected, state = golden(golden2 / request.param)
    return model.eval(), expected, state


def valid_of(expected: dict[str, Any]) -> torch.Tensor:
    return length_mask(expected["encoder_out_lengths"], expected["encoder_out"].size(1))


def test_parameters_have_wenets_names_and_shapes(case: Any, sanm: Any) -> None:
    for model, _, state in (case, sanm):
        ours = {name: tensor.shape for name, tensor in model.state_dict().items()}
        tables = {
            name: shape
            for name, shape in ours.items()
            if name.endswith(".pe") and name not in state
        }
        assert ours == {**tables, **{name: tensor.shape for name, tensor in state.items()}}


@torch.no_grad()
def test_encoder_outputs_equal_wenets_with_and_without_chunks(case: Any, sanm: Any) -> None:
    for model, expected, _ in (case, sanm):
        valid = valid_of(expected)
        for name, chunks in {
            "": (),
            **{f"_chunk{size}_left{left}": (size, left) for size, left in CHUNKS},
        }.items():
            if f"encoder_out{name}" in expected:
                encoder_out, lengths = model.encode(
                    expected["feats"], expected["feats_lengths"], *chunks
                )
                assert torch.equal(lengths, expected["encoder_out_lengths"])
                assert_close(encoder_out[valid], expected[f"encoder_out{name}"][valid])
        log_probs = model.ctc_log_probs(expected["encoder_out"])
        assert_close(log_probs[valid], expected["ctc_log_probs"][valid])


@torch.no_grad()
def test_predictor_and_decoder_outputs_equal_wenets(case: Any) -> None:
    model, expected, _ = case
    encoder_out, lengths = expected["encoder_out"], expected["encoder_out_lengths"]
    log_probs, predicted = model.predict(encoder_out, lengths)
    found, counts = expected["predictor_out"], expected["decoder_out_lengths"]
    assert predicted.counts.tolist() == counts.tolist()
    tokens = length_mask(counts, log_probs.size(1))
    assert_close(predicted.weights, found["alphas"])
    assert_close(predicted.time_weights, found["tp_alphas"])
    assert_close(predicted.embeds[tokens], found["acoustic_embeds"][tokens])
    assert_close(log_probs[tokens], expected["decoder_log_probs"][tokens])


@torch.no_grad()
def test_the_predictor_with_the_number_of_tokens_equals_wenets(case: Any) -> None:
    model, expected, _ = case
    counts = (expected["predictor_target"] >= 0).sum(dim=1)
    predicted = model.predictor(expected["encoder_out"], expected["encoder_out_lengths"], counts)
    found = expected["predictor_out_with_target"]
    assert_close(predicted.weight_sums, found["token_num"])
    assert_close(predicted.weights, found["alphas"])
    assert_close(predicted.time_weights.sum(1), found["tp_token_num"])
    # WeNet loses the last token if the sum of its weights falls short by rounding.
    whole = length_mask(counts - 1, predicted.embeds.size(1))
    assert_close(predicted.embeds[whole], found["acoustic_embeds"][whole])


def wenets_last_tokens(expected: dict[str, Any]) -> Callable[..., Any]:
    """A hook that removes the last tokens that WeNet loses by rounding."""

    def remove(module: Any, given: Any, predicted: Any) -> Any:
        if len(given) == 2:
            return predicted
        there = (
            expected["predictor_out_with_target"]["acoustic_embeds"].abs().sum(dim=2, keepdim=True)
            > 0
        )
        return predicted._replace(embeds=predicted.embeds * there)

    return remove


@pytest.mark.parametrize("kind", ["losses", "losses_train", "losses_train_sampled"])
def test_losses_and_gradients_equal_wenets(case: Any, kind: str) -> None:
    model, expected, _ = case
    model.train(kind != "losses")
    conf, traits = model.conf, model.encoder.traits
    model.encoder.traits = replace(traits, dynamic_chunks=False)
    model.conf = conf.model_copy(
        update={"sampling_ratio": 0.75 if kind == "losses_train_sampled" else 0.0}
    )
    hook = model.predictor.register_forward_hook(wenets_last_tokens(expected))
    try:
        torch.manual_seed(11)
        losses = model(
            *(expected[name] for name in ("feats", "feats_lengths", "target", "target_lengths"))
        )
    finally:
        hook.remove()
        model.conf, model.encoder.traits = conf, traits
    for name in (
        "loss",
        "loss_ctc",
        "loss_decoder",
        "loss_quantity",
        "loss_quantity_tp",
        "th_accuracy",
    ):
        assert losses[name].item() == pytest.approx(
            float(expected[kind][name]), abs=1e-4, rel=1e-4
        ), name
    if kind == "losses":
        return
    model.zero_grad()
    losses["loss"].backward()
    norms = expected[kind]["grad_norms"]
    checked = 0
    for name, weight in model.named_parameters():
        if float(norms.get(name, 0.0)) > 1e-5:
            assert weight.grad.norm().item() == pytest.approx(float(norms[name]), rel=1e-3), name
            checked += 1
    assert checked > 90


def spoken(expected: dict[str, Any], name: str) -> list[Any]:
    """`name` of the tokens of a hypothesis of WeNet that are text."""
    return [
        value
        for value, token in zip(expected[name], expected["tokens"], strict=True)
        if token not in SILENT
    ]


@torch.no_grad()
def test_hypotheses_with_their_times_and_confidences_equal_wenets(case: Any) -> None:
    model, expected, _ = case
    for chunk in (-1, 8):
        if f"hyps_chunk{chunk}" not in expected:
            continue
        options = DecodeOptions(decoding_chunk_size=chunk)
        found = decode(model, expected["feats"], expected["feats_lengths"], MODES, options)
        for mode in MODES:
            for nbest, best in zip(found[mode], expected[f"hyps_chunk{chunk}"][mode], strict=True):
                silent = SILENT if mode.startswith("paraformer") else ()
                assert list(nbest[0].tokens) == [
                    token for token in best["tokens"] if token not in silent
                ], mode
        for nbest, best in zip(
            found[MODES[0]], expected[f"hyps_chunk{chunk}"]["paraformer_greedy_search"], strict=True
        ):
            assert nbest[0].frames is not None
            thirds = [round((frame + 0.5) * 3 - 0.5) for frame in nbest[0].frames]
            assert thirds == spoken(best, "times")
            assert nbest[0].confidences == pytest.approx(
                spoken(best, "tokens_confidence"), abs=1e-4
            )


@torch.no_grad()
def test_stacked_frames_equal_wenets_but_for_the_last_frame_of_shorter_utterances(
    golden2: Path,
) -> None:
    _, expected, _ = golden(golden2 / "paraformer")
    feats, lengths = expected["feats"], expected["feats_lengths"]
    frames, counts = low_frame_rate(feats, lengths)
    assert counts.tolist() == expected["lfr_lengths"].tolist()
    whole = length_mask(counts - 1, frames.size(1))
    assert_close(frames[whole], expected["lfr_out"][whole])
    assert_close(frames[0], expected["lfr_out"][0])
    alone, _ = low_frame_rate(feats[1:2, : lengths[1]], lengths[1:2])
    assert_close(frames[1, : counts[1]], alone[0])


@torch.no_grad()
@pytest.mark.parametrize("name", PARAFORMERS)
def test_an_utterance_alone_and_beside_one_ten_times_as_long_is_the_same(
    golden2: Path, name: str
) -> None:
    config = load_config(golden2 / name / "train.yaml", of_model=True)
    model = build_model(config).eval()
    assert isinstance(model, Paraformer)
    load_weights(model, golden2 / name / "final.pt")
    torch.manual_seed(3)
    mels = config.feature_dim
    lengths = torch.tensor([1430, *range(61, 92)])
    feats = torch.randn(32, 1430, mels) * length_mask(lengths, 1430).unsqueeze(2) * 5
    # Whatever stands in the padding
    feats[1:] += ~length_mask(lengths[1:], 1430).unsqueeze(2) * 7.0
    together, counts = model.encode(feats, lengths)
    log_probs, predicted = model.predict(together, counts)
    frames = model.token_frames(predicted)
    for row in range(1, 32, 5):
        alone, count = model.encode(feats[row : row + 1, : lengths[row]], lengths[row : row + 1])
        assert_close(together[row, : counts[row]], alone[0, : count[0]], 1e-5)
        own_log_probs, own = model.predict(alone, count)
        tokens = int(own.counts[0])
        assert predicted.counts[row] == tokens
        assert_close(log_probs[row, :tokens], own_log_probs[0, :tokens], 1e-5)
        assert_close(frames[row, :tokens], model.token_frames(own)[0, :tokens])


@torch.no_grad()
def test_utterances_without_frames_or_tokens_have_no_text(golden2: Path) -> None:
    model, expected, _ = golden(golden2 / "paraformer")
    model.eval()
    for feats, lengths in (
        (torch.zeros(1, 0, 8), torch.tensor([0])),
        (torch.zeros(2, 30, 8), torch.tensor([0, 1])),
        (expected["feats"][:2], torch.tensor([143, 0])),
    ):
        found = decode(model, feats, lengths, MODES[:2], DecodeOptions())
        assert all(nbest[0].tokens == () for nbest in found[MODES[0]][len(feats) - 1 :])


@torch.no_grad()
def test_beam_search_gives_the_most_probable_sequences_in_order(golden2: Path) -> None:
    model, expected, _ = golden(golden2 / "paraformer")
    model.eval()
    (nbest,) = decode(
        model,
        expected["feats"][:1],
        expected["feats_lengths"][:1],
        MODES[1:2],
        DecodeOptions(beam_size=5),
    )[MODES[1]]
    assert len({each.tokens for each in nbest}) == len(nbest) == 5
    assert [each.score for each in nbest] == sorted((each.score for each in nbest), reverse=True)


@pytest.mark.parametrize(
    "mode", ["attention", "attention_rescoring", "joint_ctc_attention", "rnnt_greedy_search"]
)
def test_other_modes_are_refused_in_one_line_with_those_that_are_possible(
    golden2: Path, mode: str
) -> None:
    model, expected, _ = golden(golden2 / "paraformer")
    with pytest.raises(
        ValueError,
        match=f"^decode mode {mode}: the model is a paraformer, .*paraformer_greedy_search",
    ):
        decode(model, expected["feats"], expected["feats_lengths"], [mode], DecodeOptions())


def test_a_model_of_another_kind_does_not_decode_as_a_paraformer(sanm: Any) -> None:
    model, expected, _ = sanm
    with pytest.raises(
        ValueError,
        match="decode mode paraformer_beam_search: the model is no paraformer; it can do",
    ):
        decode(
            model,
            expected["feats"],
            expected["feats_lengths"],
            ["paraformer_beam_search"],
            DecodeOptions(),
        )


def test_streaming_is_refused_in_one_line(golden2: Path) -> None:
    model, expected, _ = golden(golden2 / "paraformer_dynamic")
    with pytest.raises(
        ValueError, match="^simulate_streaming: the memory of a SANM encoder keeps nothing"
    ):
        model.encode(expected["feats"], expected["feats_lengths"], 4, -1, simulate_streaming=True)
    whole, _, _ = golden(golden2 / "paraformer")  # of full context
    assert (
        streaming_obstacle(whole, DatasetConf())
        == streaming_obstacle(model, DatasetConf())
        == model.encoder.traits.obstacle
    )


@pytest.mark.parametrize(
    "changes", [{"predictor": "cif_predictor"}, {"model_conf": {"sampler": False}}]
)
def test_paraformers_that_wenet_cannot_run_train_and_decode(changes: dict[str, Any]) -> None:
    torch.manual_seed(1)
    config = parse_config(tiny_paraformer(**changes), "a.yaml")
    model = build_model(config)
    assert isinstance(model, Paraformer)
    feats, lengths = torch.randn(2, 90, 8), torch.tensor([90, 40])
    losses = model(feats, lengths, torch.tensor([[3, 4, 5], [6, -1, -1]]), torch.tensor([3, 1]))
    assert {name for name, value in losses.items() if value is not None} == set(model.loss_names)
    losses["loss"].backward()
    assert all(weight.grad is not None for weight in model.parameters())
    nbests = decode(model.eval(), feats, lengths, MODES[:1], DecodeOptions())[MODES[0]]
    assert all(nbest[0].frames == tuple(sorted(nbest[0].frames or ())) for nbest in nbests)
