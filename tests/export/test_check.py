"""The check finds differences between an export and its checkpoint."""

from __future__ import annotations

import math

import pytest
import torch

from wenet_uio.export.check import (
    INT8,
    Agreement,
    Difference,
    Limits,
    compare,
    compare_examples,
    join_examples,
    judge,
    recognise_all,
)
from wenet_uio.export.exported import ExportedModel
from wenet_uio.export.torchscript import from_torchscript, to_torchscript
from wenet_uio.search import DecodeOptions

OPTIONS = DecodeOptions()


@pytest.fixture(autouse=True)
def plainly():
    """The optimiser of torch takes a second for each model."""
    with torch.jit.optimized_execution(False):
        yield


DIFFERENCE = Difference("utt7", "ctc_greedy_search", (3, 4, 5), (3, 5))


def detokenize(tokens):
    return " ".join(map(str, tokens))


def test_a_wrong_export_is_found(make_model, examples):
    model = make_model("conformer")
    exported = ExportedModel(from_torchscript(to_torchscript(make_model("conformer"))), model)
    with torch.no_grad():
        model.ctc.ctc_lo.weight.neg_()
    agreement = compare(exported, recognise_all(model, examples, 2, OPTIONS), OPTIONS)
    assert agreement.in_words.startswith("0 of 2 utterances and ")
    assert agreement.token_errors > 10
    assert agreement.largest > 0.1


def test_a_check_counts_as_many_utterances_as_it_is_asked_for(make_model, examples):
    model = make_model("conformer")
    exported = ExportedModel(from_torchscript(to_torchscript(model)), model)
    for limit, count in ((1, 1), (2, 2), (9, 5)):
        agreement = compare(exported, recognise_all(model, examples, limit, OPTIONS), OPTIONS)
        assert agreement.in_words == f"{count} of {count} utterances and 3 of 3 short beginnings"


def test_a_check_without_utterances_is_refused():
    with pytest.raises(ValueError, match="no utterance to check the exported model with"):
        compare_examples(iter(()), 3, lambda key, feats: (0.0, 0, None))


def test_the_check_sums_up_what_each_utterance_gives():
    found = {
        "a": (0.5, 3, None),
        "utt7": (math.nan, 4, DIFFERENCE),
        "b": (0.25, 1, None),
        "c": (9.0, 9, None),
    }
    agreement = compare_examples(
        [(key, torch.zeros(1, 4, 8)) for key in found], 3, lambda key, feats: found[key]
    )
    assert (agreement.utterances, agreement.differences, agreement.tokens) == (3, (DIFFERENCE,), 8)
    assert math.isnan(agreement.largest)


def test_nan_is_refused(make_model, examples):
    model = make_model("conformer")
    broken = make_model("conformer")
    with torch.no_grad():
        broken.ctc.ctc_lo.bias[3] = math.nan
    exported = ExportedModel(from_torchscript(to_torchscript(broken)), model)
    agreement = compare(
        exported, recognise_all(model, examples, 2, OPTIONS), OPTIONS, modes=("ctc_greedy_search",)
    )
    with pytest.raises(ValueError, match="not written"):
        judge("final.zip", Agreement(2, (), agreement.largest, 10), INT8, detokenize)


def test_no_utterance_to_check_is_an_error(make_model):
    with pytest.raises(ValueError, match="no utterance"):
        recognise_all(make_model("transformer"), [("short", torch.randn(1, 3, 40))], 5, OPTIONS)


def test_examples_are_joined_in_a_circle_until_they_are_long_enough():
    examples = [
        (name, torch.full((1, length, 2), float(length)))
        for name, length in (("a", 3), ("b", 9), ("c", 2))
    ]
    found = {
        key: [int(frame) for frame in feats[0, :, 0]] for key, feats in join_examples(examples, 7)
    }
    assert found == {
        "a and 1 more": [3] * 3 + [9] * 9,
        "b": [9] * 9,
        "c and 2 more": [2] * 2 + [3] * 3 + [9] * 9,
    }
    assert join_examples(examples[:1], 7)[0][1].size(1) == 9
    assert join_examples([], 7) == []


def test_only_a_check_in_chunks_joins_examples(make_model, examples):
    model = make_model("u2pp")
    whole = recognise_all(model, examples, 2, OPTIONS)
    assert [reference.feats.size(1) for reference in whole] == [60, 67, 1, 6, 7]
    assert [reference.log_probs.size(1) for reference in whole] == [14, 16, 0, 0, 1]
    in_chunks = recognise_all(
        model, examples, 2, DecodeOptions(decoding_chunk_size=8, num_decoding_left_chunks=2)
    )
    assert [reference.key for reference in in_chunks] == [
        "utterance0 and 3 more",
        "utterance1 and 3 more",
        "utterance0 and 3 more, frames 0 to 1",
        "utterance0 and 3 more, frames 0 to 6",
        "utterance0 and 3 more, frames 0 to 7",
    ]
    assert all(reference.log_probs.size(1) >= 6 * 8 for reference in in_chunks[:2])


def test_judge_names_the_first_difference():
    agreement = Agreement(20, (DIFFERENCE,), 2.5, tokens=40)
    assert agreement.token_errors == 2.5
    said = judge("final_quant.zip", agreement, INT8, detokenize)
    assert said.startswith(
        "final_quant.zip: 19 of 20 utterances as the checkpoint decodes them; largest difference"
    )
    assert said.endswith(
        "2.50 % of the tokens differ; utt7 in ctc_greedy_search: '3 4 5' became '3 5'"
    )


@pytest.mark.parametrize(
    ("agreement", "limits", "message"),
    [
        (Agreement(20, (DIFFERENCE,), 1e-5, 40), Limits(), "more than 0 % of the tokens"),
        (
            Agreement(20, (DIFFERENCE,), 2.5, 40),
            Limits(math.inf, 2.0),
            "more than 2 % of the tokens",
        ),
        (Agreement(20, (), 0.01, 40), Limits(), "differ by more than 0.001"),
        (Agreement(20, (), math.nan, 40), INT8, "differ by more than inf"),
        (Agreement(20, (DIFFERENCE,), math.nan, 4), INT8, "more than 10 % of the tokens"),
        (Agreement(20, (DIFFERENCE,), 1.1, 4), INT8, "more than 10 % of the tokens"),
    ],
)
def test_judge_refuses_differences_beyond_the_limits(agreement, limits, message):
    with pytest.raises(ValueError, match=message):
        judge("model.onnx", agreement, limits, detokenize)


def test_judge_accepts_any_tokens_of_int8_models_with_almost_equal_scores():
    assert "25.00 % of the tokens" in judge(
        "final_quant.zip", Agreement(20, (DIFFERENCE,), 0.1, 4), INT8, detokenize
    )


def test_a_wrong_decoder_is_found_although_all_tokens_are_equal(make_model, examples):
    model, broken = make_model("u2pp"), make_model("u2pp")
    with torch.no_grad():
        broken.decoder.right_decoder.output_layer.bias[0] += 0.5
    exported = ExportedModel(from_torchscript(to_torchscript(broken)), model)
    references = recognise_all(model, examples, 2, OPTIONS)
    assert compare(exported, references, OPTIONS, modes=("ctc_greedy_search",)).largest < 1e-4
    assert compare(exported, references, OPTIONS).largest > 1e-3
