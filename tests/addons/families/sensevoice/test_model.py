"""With the weights of WeNet's SenseVoice, our model computes the numbers of WeNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.models.golden import assert_close
from wenet_uio.addons.families.sensevoice.model import SenseVoice
from wenet_uio.config import ConfigError, load_config, parse_config
from wenet_uio.models import build_model
from wenet_uio.models.masks import length_mask
from wenet_uio.models.weights import load_weights
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.recogniser import FrameClock
from wenet_uio.train.run_config import read_config

MODES = ("ctc_greedy_search", "ctc_prefix_beam_search")
ASKED = DecodeOptions(language="zh", itn=True)


def load(golden2: Path, *overrides: str) -> tuple[SenseVoice, dict[str, Any]]:
    folder = golden2 / "sensevoice_small"
    model = build_model(load_config(folder / "train.yaml", overrides, of_model=True)).eval()
    assert isinstance(model, SenseVoice)
    load_weights(model, folder / "final.pt")
    return model, torch.load(folder / "golden.pt", weights_only=True)


def test_parameters_have_wenets_names_and_shapes(golden2: Path) -> None:
    model, _ = load(golden2)
    theirs = torch.load(golden2 / "sensevoice_small/final.pt", weights_only=True)
    ours = {
        name: weight.shape
        for name, weight in model.state_dict().items()
        if not name.endswith(".pe")
    }
    assert ours == {
        name: weight.shape for name, weight in theirs.items() if not name.endswith(".pe")
    }


@torch.no_grad()
def test_inputs_outputs_and_hypotheses_equal_wenets(golden2: Path) -> None:
    model, expected = load(golden2, "mask_padding=false")
    feats, lengths = expected["feats"], expected["feats_lengths"]
    asked, counts = model.inputs(feats, lengths, ["zh"] * 4, itn=True)
    assert_close(asked[0], expected["encoder_in"][0])
    assert counts.tolist() == expected["encoder_in_lengths"].tolist()
    encoder_out, counts = model.encode_asked(feats, lengths, ["zh"] * 4, itn=True)
    valid = length_mask(counts, encoder_out.size(1))
    assert_close(encoder_out[valid], expected["encoder_out"][valid])
    assert_close(model.ctc_log_probs(encoder_out)[valid], expected["ctc_log_probs"][valid])
    for mode, nbests in decode(model, feats, lengths, MODES, ASKED).items():
        for nbest, best in zip(nbests, expected["hyps_chunk-1"][mode], strict=True):
            assert list(nbest[0].tokens) == list(best["tokens"]), mode


@torch.no_grad()
def test_an_utterance_alone_and_beside_one_ten_times_as_long_is_the_same(golden2: Path) -> None:
    model, _ = load(golden2)
    torch.manual_seed(2)
    lengths = torch.tensor([1000, 97])
    feats = torch.randn(2, 1000, 80)
    together, counts = model.encode_asked(feats, lengths, ["en", "ja"], itn=False)
    alone, count = model.encode_asked(feats[1:, :97], lengths[1:], ["ja"], itn=False)
    assert counts[1] == count[0]
    assert_close(together[1, : counts[1]], alone[0], 1e-5)


@torch.no_grad()
def test_language_and_form_change_the_queries_of_each_utterance(golden2: Path) -> None:
    model, expected = load(golden2)
    feats, lengths = expected["feats"][:3], torch.tensor([143, 143, 143])
    mixed, _ = model.inputs(feats, lengths, ["en", None, "auto"], itn=True)
    assert torch.equal(mixed[1, :4], mixed[2, :4])
    assert not torch.equal(mixed[0, 0], mixed[1, 0])
    plain, _ = model.inputs(feats, lengths)
    assert torch.equal(plain[1, :3], mixed[1, :3])
    assert not torch.equal(plain[1, 3], mixed[1, 3])


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        (
            "ctc_greedy_search",
            DecodeOptions(language="de"),
            "language de: unknown to this model; known: auto, zh, en",
        ),
        (
            "ctc_greedy_search",
            DecodeOptions(simulate_streaming=True),
            "sensevoice_small decodes with full context only",
        ),
        (
            "attention",
            ASKED,
            "decode mode attention: the model has no decoder; it can do ctc_greedy_search",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(
    golden2: Path, mode: str, options: DecodeOptions, message: str
) -> None:
    model, expected = load(golden2)
    with pytest.raises(ValueError, match=message):
        decode(model, expected["feats"], expected["feats_lengths"], [mode], options)


def test_it_is_not_trained(golden2: Path) -> None:
    with pytest.raises(
        ValueError, match=r"train\.yaml: model: sensevoice_small decodes and cannot be trained here"
    ):
        read_config(golden2 / "sensevoice_small/train.yaml")


def test_frames_of_queries_take_no_time(golden2: Path) -> None:
    model, _ = load(golden2)
    clock = FrameClock.of(
        model, load_config(golden2 / "sensevoice_small/train.yaml", of_model=True).dataset_conf
    )
    assert [round(clock.edge(frame), 3) for frame in (0, 4, 5)] == [0.0, 0.0, 0.06]


def test_itn_is_refused_for_another_model_and_a_decoder_for_this_one() -> None:
    values = {"output_dim": 9, "tokenizer_conf": {"special_tokens": {"<sos>": 1, "<eos>": 2}}}
    model = build_model(parse_config(values | {"encoder_conf": {"num_blocks": 1}}, "a.yaml"))
    with pytest.raises(ValueError, match="itn is an option of models sensevoice_small"):
        decode(
            model,
            torch.zeros(1, 9, 23),
            torch.tensor([9]),
            ["ctc_greedy_search"],
            DecodeOptions(itn=True),
        )
    conf = {"encoder": "sanm_encoder_with_tp", "encoder_conf": {"tp_blocks": 1}}
    with pytest.raises(
        ConfigError, match="decoder: bitransformer: model sensevoice_small needs decoder: null"
    ):
        parse_config({"model": "sensevoice_small", **conf}, "a.yaml")
    with pytest.raises(ConfigError, match="decoder: null: model asr_model needs a decoder"):
        parse_config({"decoder": None}, "a.yaml")
