"""All decode modes on whole models: equal to WeNet's hypotheses, and properties of all modes."""

import math
import sys
from dataclasses import replace
from itertools import chain
from typing import cast

import pytest
import torch

from wenet_uio.base.messages import said_once
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.search import MODES, DecodeOptions, ctc_greedy_search, ctc_prefix_beam_search, decode
from wenet_uio.search.context_graph import ContextGraph
from wenet_uio.search.modes import check_parts
from wenet_uio.search.rescoring import attention_rescoring
from wenet_uio.search.types import Hypothesis, NBest

WENETS = ("attention", "attention_rescoring", "ctc_greedy_search", "ctc_prefix_beam_search")
KINDS = (
    "transformer",
    "conformer",
    "conformer_conv2d6",
    "conformer_conv2d8",
    "u2pp_conformer",
    "squeezeformer",
)
KINDS += ("branchformer", "e_branchformer")


@pytest.fixture
def stored(golden, request, monkeypatch):
    """(model, outputs of WeNet) for the kind of model in the parameter."""
    monkeypatch.chdir(golden / request.param)  # train.yaml has a relative path to its CMVN file
    model = build_model(load_config("train.yaml", ["mask_padding=false"]))
    model.load_state_dict(torch.load("final.pt"))
    return model.eval(), torch.load("golden.pt")


def assert_hypotheses(nbests, expected, with_score):
    for nbest, wanted in zip(nbests, expected, strict=True):
        assert list(nbest[0].tokens) == list(wanted["tokens"])
        if with_score:
            assert nbest[0].score == pytest.approx(wanted["score"], abs=1e-3)
        for hypothesis, tokens, score in zip(
            nbest, wanted["nbest"], wanted["nbest_scores"], strict=False
        ):
            assert list(hypothesis.tokens) == list(tokens)
            assert hypothesis.score == pytest.approx(score, abs=1e-3)


@pytest.mark.parametrize(
    ("stored", "chunk", "streaming"),
    [
        *((kind, -1, False) for kind in KINDS),
        ("u2pp_conformer", 8, False),
        ("u2pp_conformer", 8, True),
    ],
    indirect=["stored"],
)
def test_every_mode_gives_wenets_hypotheses(stored, chunk, streaming):
    model, outputs = stored
    options = DecodeOptions(
        beam_size=10,
        ctc_weight=0.3,
        reverse_weight=0.5 if model.decoder.bidirectional else 0.0,
        decoding_chunk_size=chunk,
        simulate_streaming=streaming,
    )
    results = decode(model, outputs["feats"], outputs["feats_lengths"], WENETS, options)
    expected = outputs[f"hyps_chunk{chunk}"]
    for mode in WENETS:  # WeNet gives no scores for greedy and attention search
        assert_hypotheses(
            results[mode], expected[mode], with_score=mode not in ("ctc_greedy_search", "attention")
        )
    assert all(len(nbest) == 10 for nbest in results["ctc_prefix_beam_search"])


@pytest.mark.parametrize(
    "stored", [kind for kind in KINDS if kind != "u2pp_conformer"], indirect=True
)
def test_ctc_searches_read_wenets_own_posteriors(stored):
    _, outputs = stored
    posteriors = outputs["ctc_log_probs"], outputs["encoder_out_lengths"]
    expected = outputs["hyps_chunk-1"]
    assert_hypotheses(
        ctc_greedy_search(*posteriors), expected["ctc_greedy_search"], with_score=False
    )
    assert_hypotheses(
        ctc_prefix_beam_search(*posteriors, 10), expected["ctc_prefix_beam_search"], with_score=True
    )


@pytest.mark.parametrize("stored", ["u2pp_conformer"], indirect=True)
def test_rescoring_adds_the_scores_of_both_decoders_token_by_token(stored):
    model, outputs = stored
    options = DecodeOptions(beam_size=4, ctc_weight=0.2, reverse_weight=0.4)
    feats, lengths = outputs["feats"], outputs["feats_lengths"]
    results = decode(
        model, feats, lengths, ["ctc_prefix_beam_search", "attention_rescoring"], options
    )
    with torch.inference_mode():
        encoder_out, frames = model.encode(feats, lengths)
        for utterance, nbest in enumerate(results["attention_rescoring"]):
            ctc = {
                hypothesis.tokens: hypothesis.score
                for hypothesis in results["ctc_prefix_beam_search"][utterance]
            }
            assert sorted(ctc) == sorted(hypothesis.tokens for hypothesis in nbest)
            assert [h.score for h in nbest] == sorted((h.score for h in nbest), reverse=True)
            for tokens, score in ((hypothesis.tokens, hypothesis.score) for hypothesis in nbest):
                left, right = model.forward_attention_decoder(
                    torch.tensor([[model.sos, *tokens]]),
                    torch.tensor([len(tokens) + 1]),
                    encoder_out[utterance : utterance + 1, : frames[utterance]],
                    0.4,
                )
                forwards = sum(
                    left[0, place, token] for place, token in enumerate([*tokens, model.eos])
                )
                backwards = sum(
                    right[0, place, token] for place, token in enumerate([*tokens[::-1], model.eos])
                )
                assert score == pytest.approx(
                    float(0.6 * forwards + 0.4 * backwards) + 0.2 * ctc[tokens], abs=1e-3
                )


@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
def test_attention_search_with_beam_one_follows_the_best_token(stored):
    model, outputs = stored
    result = decode(
        model, outputs["feats"], outputs["feats_lengths"], ["attention"], DecodeOptions(beam_size=1)
    )
    with torch.inference_mode():
        encoder_out, frames = model.encode(outputs["feats"], outputs["feats_lengths"])
        for utterance, nbest in enumerate(result["attention"]):
            memory = encoder_out[utterance : utterance + 1, : frames[utterance]]
            tokens, score = [model.sos], 0.0
            while len(tokens) <= encoder_out.size(1) and (
                len(tokens) == 1 or tokens[-1] != model.eos
            ):
                hyps = torch.tensor([tokens])
                step = model.forward_attention_decoder(
                    hyps, torch.tensor([len(tokens)]), memory, 0.0
                )[0][0, -1]
                score += step.max().item()
                tokens.append(step.argmax().item())
            assert nbest[0].tokens == tuple(token for token in tokens[1:] if token != model.eos)
            assert nbest[0].score == pytest.approx(score, abs=1e-3)
            steps = len(tokens) - 1
            assert nbest[0].decoder_confidence == pytest.approx(math.exp(score / steps), rel=1e-4)


@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
def test_the_confidence_of_the_decoder_does_not_depend_on_the_length_penalty(stored):
    model, outputs = stored
    inputs = (outputs["feats"], outputs["feats_lengths"])
    nbests = [
        decode(model, *inputs, ["attention"], DecodeOptions(length_penalty=penalty))["attention"]
        for penalty in (0.0, 1.0)
    ]
    confidences = [
        {best.tokens: best.decoder_confidence for best in chain(*nbest)} for nbest in nbests
    ]
    both = confidences[0].keys() & confidences[1].keys()
    assert len(both) > 3
    for tokens in both:
        confidence = confidences[0][tokens]
        assert confidence == pytest.approx(confidences[1][tokens], rel=1e-4)
        assert confidence is not None
        assert 0 < confidence <= 1


@pytest.mark.parametrize("stored", ["conformer", "u2pp_conformer"], indirect=True)
def test_the_decoder_gives_each_token_its_probability_in_each_mode_with_a_decoder(stored):
    """Compared with one call of the decoder for the text that was found."""
    model, outputs = stored
    inputs = (outputs["feats"], outputs["feats_lengths"])
    modes = ("attention", "joint_ctc_attention", "attention_rescoring")
    results = decode(model, *inputs, modes, DecodeOptions(beam_size=3, token_times=True))
    with torch.inference_mode():
        encoder_out, frames = model.encode(*inputs)
        for mode in modes:
            for row, nbest in enumerate(results[mode]):
                memory = encoder_out[row : row + 1, : frames[row]]
                for hypothesis in nbest:
                    tokens = torch.tensor([[model.sos, *hypothesis.tokens]])
                    lengths = torch.tensor([tokens.size(1)])
                    log_probs, _ = model.forward_attention_decoder(tokens, lengths, memory, 0.0)
                    expected = log_probs[0, :-1].gather(1, tokens[0, 1:, None]).exp()
                    found = hypothesis.token_confidences
                    assert found == pytest.approx(expected.flatten().tolist(), rel=1e-3), mode


@pytest.mark.parametrize("stored", KINDS, indirect=True)
def test_audio_too_short_for_a_frame_gives_an_empty_hypothesis_and_does_not_change_others(stored):
    model, outputs = stored
    feats = outputs["feats"][:2, :60]
    # May continue to the longest utterance of the batch
    modes = [mode for mode in WENETS if mode != "attention"]
    alone = decode(model, feats[:1], torch.tensor([60]), modes, DecodeOptions())
    results = decode(model, feats, torch.tensor([60, 4]), MODES, DecodeOptions())
    for mode in MODES:
        assert [hypothesis.tokens for hypothesis in results[mode][1]] == [()]
    for mode in modes:
        assert results[mode][0][0].tokens == alone[mode][0][0].tokens


@pytest.mark.parametrize("stored", ["u2pp_conformer"], indirect=True)
def test_token_times_has_a_time_for_each_token(stored):
    model, outputs = stored
    feats, lengths = outputs["feats"], outputs["feats_lengths"]
    options = DecodeOptions(beam_size=3)
    mode = "ctc_prefix_beam_search"
    plain = decode(model, feats, lengths, [mode], options)[mode]
    timed = decode(model, feats, lengths, [mode], replace(options, token_times=True))[mode]
    for before, after in zip(chain(*plain), chain(*timed), strict=True):
        assert before.frames is None
        assert after.frames is not None
        assert after.confidences is not None
        assert replace(after, frames=None, confidences=None) == before
        assert all(0 < confidence <= 1 for confidence in after.confidences)
        assert len(after.frames) == len(after.tokens)
        assert list(after.frames) == sorted(set(after.frames))


@pytest.mark.third
@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("stored", ["conformer", "u2pp_conformer"], indirect=True)
def test_utterances_with_too_many_ctc_scores_are_searched_in_groups_with_the_same_results(
    stored, together, monkeypatch
):
    model, outputs = stored
    inputs = outputs["feats"], outputs["feats_lengths"]
    whole = decode(model, *inputs, MODES, DecodeOptions())
    counts = []
    log_probs_of = model.ctc_log_probs

    def counted(encoder_out, blank_penalty=0.0):
        log_probs = log_probs_of(encoder_out, blank_penalty)
        counts.append(log_probs.numel())
        return log_probs

    with torch.inference_mode():
        scores = log_probs_of(model.encode(*inputs)[0])
    bound = together * scores[0].numel()
    monkeypatch.setattr(sys.modules[decode.__module__], "SCORES_TOGETHER", bound)
    monkeypatch.setattr(model, "ctc_log_probs", counted)
    grouped = decode(model, *inputs, MODES, DecodeOptions())

    assert max(counts) <= bound < scores.numel()
    assert grouped.keys() == whole.keys()
    for mode, nbests in whole.items():
        for nbest, nbest_of_whole in zip(grouped[mode], nbests, strict=True):
            for found, expected in zip(nbest, nbest_of_whole, strict=True):
                assert found.tokens == expected.tokens
                assert found.score == pytest.approx(expected.score, abs=1e-3)


@pytest.mark.parametrize("together", [0, 1, 3])
@pytest.mark.parametrize("stored", ["conformer", "u2pp_conformer"], indirect=True)
def test_hypotheses_with_too_many_decoder_scores_are_rescored_in_groups_with_the_same_results(
    stored, together, monkeypatch
):
    model, outputs = stored
    frames, lengths = model.encode(outputs["feats"], outputs["feats_lengths"])
    encoded = frames[[0, 1, 0]], lengths[[0, 1, 0]]
    hypotheses = [
        [Hypothesis((1, 2, 3, 4) * repeated, -float(repeated)) for repeated in nbest]
        for nbest in [(1, 15), (), (2, 3, 0, 5)]
    ]
    reverse_weight = 0.4 if model.decoder.bidirectional else 0.0
    whole = attention_rescoring(model, hypotheses, encoded, 0.3, reverse_weight)
    of_longest = (1 + 4 * 15) * model.vocab_size
    counts = []
    model.decoder.register_forward_hook(lambda *call: counts.append(call[2][0].numel()))
    module = sys.modules[attention_rescoring.__module__]
    monkeypatch.setattr(module, "SCORES_TOGETHER", together * of_longest)
    grouped = attention_rescoring(model, hypotheses, encoded, 0.3, reverse_weight)

    assert max(counts) <= max(together, 1) * of_longest
    assert len(counts) == {0: 6, 1: 6, 3: 2}[together]
    assert [len(nbest) for nbest in grouped] == [2, 0, 4]
    for found, expected in zip(chain(*grouped), chain(*whole), strict=True):
        assert found.tokens == expected.tokens
        assert found.score == pytest.approx(expected.score, abs=1e-3)


@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
def test_reverse_weight_is_0_without_a_right_to_left_decoder_and_the_log_says_so_once(
    stored, caplog
):
    model, outputs = stored
    said_once.clear()

    def rescored(weight: float) -> list[NBest]:
        options = DecodeOptions(reverse_weight=weight)
        batch = outputs["feats"], outputs["feats_lengths"], ["attention_rescoring"]
        return decode(model, *batch, options)["attention_rescoring"]

    plain = rescored(0.0)
    assert not caplog.records
    assert [rescored(0.5), rescored(0.5)] == [plain, plain]
    (line,) = caplog.messages
    assert line.startswith("reverse_weight 0.5 is 0 for this model, whose decoder has no right-to")


@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
def test_an_unknown_mode_is_refused_before_any_work_with_the_known_modes(stored):
    model, _ = stored
    nothing = cast("torch.Tensor", None)
    with pytest.raises(
        ValueError, match="unknown decode mode greedy; known: attention, attention_resc"
    ):
        decode(model, nothing, nothing, ["attention", "greedy"], DecodeOptions())
    with pytest.raises(ValueError, match="none given"):
        decode(model, nothing, nothing, [], DecodeOptions())


@pytest.mark.parametrize(
    "bad",
    [
        {"beam_size": 0},
        {"nbest": 0},
        {"ctc_weight": 1.5},
        {"reverse_weight": -0.1},
        {"blank_penalty": float("nan")},
        {"blank_penalty": -1001.0},
    ],
)
def test_impossible_options_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        DecodeOptions(**bad)


@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
def test_nbest_limits_the_hypotheses(stored):
    model, outputs = stored
    for mode, nbests in decode(
        model,
        outputs["feats"],
        outputs["feats_lengths"],
        MODES,
        DecodeOptions(beam_size=5, nbest=3),
    ).items():
        assert {len(nbest) for nbest in nbests} == {1 if mode == "ctc_greedy_search" else 3}


@pytest.mark.third
@pytest.mark.parametrize("penalty", [0.0, 0.7, -0.4])
@pytest.mark.parametrize("mode", ["attention", "joint_ctc_attention"])
@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
def test_the_best_hypotheses_are_those_of_a_search_for_all_with_fewer_steps(
    stored, mode, penalty, monkeypatch
):
    model, outputs = stored
    with torch.no_grad():  # random weights hardly ever end a hypothesis
        model.decoder.output_layer.bias[model.eos] += 2.0
    step = model.decoder.forward_one_step
    steps = []
    monkeypatch.setattr(
        model.decoder, "forward_one_step", lambda *args: (steps.append(mode), step(*args))[1]
    )
    results, counts = {}, {}
    for nbest in (1, 2, None):
        steps.clear()
        options = DecodeOptions(beam_size=6, nbest=nbest, length_penalty=penalty)
        results[nbest] = decode(model, outputs["feats"], outputs["feats_lengths"], [mode], options)[
            mode
        ]
        counts[nbest] = len(steps)

    for nbest in (1, 2):
        for few, every in zip(results[nbest], results[None], strict=True):
            assert [one.tokens for one in few] == [one.tokens for one in every[:nbest]]
    assert counts[1] <= counts[2] <= counts[None]
    if penalty <= 0.0:
        assert counts[1] < counts[None]


@pytest.mark.parametrize("stored", ["u2pp_conformer"], indirect=True)
def test_joint_search_scores_a_hypothesis_by_both_ctc_and_decoder(stored):
    model, outputs = stored
    feats, lengths = outputs["feats"], outputs["feats_lengths"]
    mode = "joint_ctc_attention"
    nbests = decode(model, feats, lengths, [mode], DecodeOptions(beam_size=8, ctc_weight=0.4))[mode]
    with torch.inference_mode():
        encoder_out, frames = model.encode(feats, lengths)
        log_probs = model.ctc_log_probs(encoder_out)

        def joint(utterance, tokens):
            memory = encoder_out[utterance : utterance + 1, : frames[utterance]]
            hyps = torch.tensor([[model.sos, *tokens]])
            left, _ = model.forward_attention_decoder(
                hyps, torch.tensor([len(tokens) + 1]), memory, 0.0
            )
            attention = sum(
                left[0, place, token].item() for place, token in enumerate([*tokens, model.eos])
            )
            target = torch.tensor([tokens], dtype=torch.long)
            sizes = frames[utterance : utterance + 1], torch.tensor([len(tokens)])
            one = log_probs[utterance : utterance + 1].transpose(0, 1)
            ctc = -torch.nn.functional.ctc_loss(one, target, *sizes, reduction="none").item()
            return 0.6 * attention + 0.4 * ctc

        for utterance, nbest in enumerate(nbests):
            assert len(nbest) == 8
            for hypothesis in nbest:
                assert hypothesis.score == pytest.approx(
                    joint(utterance, hypothesis.tokens), abs=1e-2
                )


@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
def test_hot_words_and_language_models_reach_prefix_beam_search_and_rescoring(stored):
    model, outputs = stored
    feats, lengths = outputs["feats"], outputs["feats_lengths"]
    modes = ["ctc_prefix_beam_search", "attention_rescoring"]
    plain = decode(model, feats, lengths, modes, DecodeOptions(beam_size=4))
    phrase = min((hypothesis.tokens for hypothesis in plain["attention_rescoring"][0][1:]), key=len)
    hot = decode(
        model, feats, lengths, modes, DecodeOptions(beam_size=4), [ContextGraph([phrase], 50.0)]
    )
    for mode in modes:
        assert not holds(plain[mode][0][0].tokens, phrase)
        assert holds(hot[mode][0][0].tokens, phrase)


def holds(tokens, phrase):
    return any(tokens[start : start + len(phrase)] == phrase for start in range(len(tokens)))


@pytest.mark.parametrize("stored", ["conformer"], indirect=True)
@pytest.mark.parametrize(
    ("weights", "mode", "message"),
    [
        (
            {},
            "rnnt_greedy_search",
            "trained with transducer_weight 0; it can do attention, attention_rescoring, ctc",
        ),
        (
            {"attention_weight": 0.0},
            "attention_rescoring",
            "trained with attention_weight 0; it can do ctc_greedy_s",
        ),
        (
            {"ctc_weight": 0.0},
            "ctc_prefix_beam_search",
            "trained with ctc_weight 0; it can do attention$",
        ),
    ],
)
def test_a_mode_that_the_model_was_not_trained_for_is_refused(stored, weights, mode, message):
    model, outputs = stored
    for name, weight in weights.items():
        setattr(model, name, weight)
    with pytest.raises(ValueError, match=f"decode mode {mode}: the model was {message}"):
        check_parts(model, ["attention"] * (mode == "rnnt_greedy_search") + [mode])
    if mode == "rnnt_greedy_search":
        with pytest.raises(ValueError, match=message):
            decode(model, outputs["feats"], outputs["feats_lengths"], [mode], DecodeOptions())
