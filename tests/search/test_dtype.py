"""Decoding in 16 bits: every mode of every kind of model, scores near those of fp32, and which type
is chosen.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.models.test_batches import ZIPFORMER
from tests.search.test_decode import KINDS, stored  # noqa: F401 # a fixture
from tests.support.models.tiny_paraformer import tiny_paraformer
from tests.support.train.tiny import small_config
from tests.train.test_waits import TRANSDUCER
from wenet_uio.config import parse_config
from wenet_uio.models import build_model
from wenet_uio.models.arithmetic import gains_by_bf16
from wenet_uio.search import MODES, DecodeOptions, decode
from wenet_uio.search.recogniser import resolve_dtype

CPU = torch.device("cpu")


@pytest.mark.third
@pytest.mark.parametrize("stored", KINDS, indirect=True)
def test_scores_in_bf16_are_near_those_in_fp32_in_every_mode(stored):  # noqa: F811
    model, outputs = stored
    feats, lengths = outputs["feats"], outputs["feats_lengths"]
    options = DecodeOptions(beam_size=4, token_times=True)
    expected = decode(model, feats, lengths, MODES, options)
    found = decode(model, feats, lengths, MODES, replace(options, dtype="bf16"))
    pairs = [pair for mode in MODES for pair in zip(found[mode], expected[mode], strict=True)]
    alike = [
        (nbest[0], wanted[0]) for nbest, wanted in pairs if nbest[0].tokens == wanted[0].tokens
    ]
    assert len(alike) > 0.5 * len(pairs)  # these models were not trained
    for hypothesis, wanted in alike:
        assert hypothesis.score == pytest.approx(wanted.score, rel=0.02, abs=0.3)
    assert any(hypothesis.score != wanted.score for hypothesis, wanted in alike)
    assert not torch.is_autocast_enabled("cpu")
    chosen = decode(model, feats, lengths, ["ctc_greedy_search"], replace(options, dtype="auto"))
    assert (
        chosen["ctc_greedy_search"]
        == (found if gains_by_bf16(CPU) else expected)["ctc_greedy_search"]
    )


@pytest.mark.parametrize(
    ("keys", "modes"),
    [
        (TRANSDUCER, ("rnnt_beam_search", "rnnt_greedy_search")),
        (
            {**tiny_paraformer(), "input_dim": 7 * 8},
            ("paraformer_beam_search", "paraformer_greedy_search"),
        ),
        (
            {
                "encoder": "zipformer",
                "encoder_conf": {**ZIPFORMER, "causal": True, "chunk_size": 4},
            },
            MODES,
        ),
    ],
    ids=["rnnt", "paraformer", "zipformer"],
)
def test_log_probabilities_are_summed_in_fp32_for_other_models(keys, modes):
    torch.manual_seed(3)
    config = parse_config(keys, "train.yaml") if "dataset_conf" in keys else small_config(**keys)
    model = build_model(config).eval()
    feats = torch.randn(2, 90, config.feature_dim)
    lengths = torch.tensor([90, 60])
    in_chunks = {"decoding_chunk_size": 4, "simulate_streaming": True} if modes is MODES else {}
    options = DecodeOptions(beam_size=3, transducer_weight=0.6, **in_chunks)
    for mode in modes:
        results = [
            decode(model, feats, lengths, [mode], replace(options, dtype=dtype))
            for dtype in ("fp32", "bf16")
        ]
        scores = [[nbest[0].score for nbest in result[mode]] for result in results]
        assert scores[1] == pytest.approx(scores[0], rel=0.03, abs=0.3)
        assert scores[1] != scores[0]
        assert any(score != float(torch.tensor(score).bfloat16()) for score in scores[1])


@pytest.mark.parametrize(
    ("trained", "asked", "chosen"),
    [
        ("fp32", None, "fp32"),
        ("fp32", "auto", "auto"),
        ("fp32", "fp16", "fp16"),
        ("bf16", None, "auto"),
        ("fp16", None, "auto"),
        ("auto", None, "auto"),
        ("auto", "fp32", "fp32"),
    ],
)
def test_a_model_decodes_in_16_bits_if_it_was_trained_so_and_the_device_can(trained, asked, chosen):
    config = parse_config({"dtype": trained}, "train.yaml")
    for device in (CPU, torch.device("meta")):
        dtype = ("bf16" if gains_by_bf16(device) else "fp32") if chosen == "auto" else chosen
        assert resolve_dtype(DecodeOptions(dtype=asked), config, device).dtype == dtype


def test_an_unknown_dtype_is_named():
    with pytest.raises(ValueError, match="dtype: expected fp32, bf16, fp16, auto, found half"):
        DecodeOptions(dtype="half")
