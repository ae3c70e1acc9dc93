"""A Paraformer in the layout of FunASR becomes a model that computes the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support.models.funasr_layout import CONFIG, write_funasr
from wenet_uio.addons.families.paraformer.model import Paraformer
from wenet_uio.models.converted import write_model
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.recogniser import load_recogniser
from wenet_uio.train.trained_model import convert_model


@pytest.fixture
def funasr(golden2: Path, tmp_path: Path) -> Path:
    """The golden paraformer of WeNet in the layout of FunASR."""
    return write_funasr(golden2 / "paraformer", tmp_path / "funasr")


def change(folder: Path, **sections: Any) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump({**CONFIG, **sections}))


@torch.no_grad()
def test_the_converted_model_has_wenets_weights_and_numbers(
    funasr: Path, golden2: Path, tmp_path: Path
) -> None:
    converted = convert_model(funasr)
    write_model(converted, tmp_path / "model")
    assert converted.notes == (
        "the model has no CTC, so it decodes in the modes of a paraformer only",
    )
    recogniser = load_recogniser(tmp_path / "model")
    model, wenet = (
        recogniser.model.eval(),
        torch.load(golden2 / "paraformer/final.pt", weights_only=True),
    )
    assert isinstance(model, Paraformer)
    weights = model.state_dict()
    assert weights.keys() == wenet.keys()
    for name, weight in weights.items():
        if not name.startswith("ctc."):
            torch.testing.assert_close(weight, wenet[name], atol=1e-5, rtol=1e-5)
    golden: dict[str, Any] = torch.load(golden2 / "paraformer/golden.pt", weights_only=True)
    feats, lengths = golden["feats"][:1], golden["feats_lengths"][:1]
    encoder_out, counts = model.encode(feats, lengths)
    torch.testing.assert_close(encoder_out, golden["encoder_out"][:1], atol=1e-4, rtol=1e-4)
    log_probs, _ = model.predict(encoder_out, counts)
    torch.testing.assert_close(log_probs[0], golden["decoder_log_probs"][0], atol=1e-4, rtol=1e-4)
    ((nbest,),) = decode(
        model, feats, lengths, ["paraformer_greedy_search"], DecodeOptions()
    ).values()
    wanted = [
        token
        for token in golden["hyps_chunk-1"]["paraformer_greedy_search"][0]["tokens"]
        if token > 2
    ]
    assert list(nbest[0].tokens) == wanted
    assert recogniser.tokenizer.tokenize("hello 天")[0] == ["he@@", "llo", "天"]


def test_the_train_yaml_says_what_funasr_says(funasr: Path, tmp_path: Path) -> None:
    write_model(convert_model(funasr), tmp_path / "model")
    config = load_recogniser(tmp_path / "model").config
    assert config.tokenizer_conf.special_tokens == {
        "<blank>": 0,
        "<sos>": 1,
        "<eos>": 2,
        "<unk>": 47,
    }
    assert config.dataset_conf.fbank_conf.window_type == "hamming"
    assert (config.input_dim, config.output_dim, config.model_conf.ctc_weight) == (56, 48, 0.0)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "final.pt",
        "global_cmvn",
        "seg_dict",
        "train.yaml",
        "units.txt",
    ]


def test_a_model_with_one_branch_and_without_dictionary_is_converted(
    funasr: Path, tmp_path: Path
) -> None:
    weights = torch.load(funasr / "model.pt", weights_only=True)
    kept = {
        name: value
        for name, value in weights.items()
        if "blstm" not in name and "upsample" not in name
    }
    kept = {name: value for name, value in kept.items() if "cif_output2" not in name}
    torch.save({"state_dict": kept, "epoch": 3}, funasr / "model.pt")
    (funasr / "seg_dict").unlink()
    tokens = json.loads((funasr / "tokens.json").read_text())
    (funasr / "tokens.json").rename(funasr / "unused")
    (funasr / "tokens.txt").write_text("\n".join(tokens) + "\n")
    conf = {"idim": 32, "l_order": 1, "r_order": 1, "tail_threshold": 0.45}
    change(funasr, model="Paraformer", predictor="CifPredictorV2", predictor_conf=conf)
    write_model(convert_model(funasr), tmp_path / "model")
    recogniser = load_recogniser(tmp_path / "model")
    assert recogniser.config.predictor == "cif_predictor"
    assert recogniser.tokenizer.detokenize([3, 4]) == "a b"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"model": "SeacoParaformer"},
            "config.yaml: model SeacoParaformer: only Paraformer or BiCifParaformer",
        ),
        ({"predictor": "other"}, "config.yaml: predictor other: only CifPredictorV2"),
        (
            {"predictor_conf": {"upsample_type": "cnn"}},
            "only upsample_type cnn_blstm with use_cif1_cnn false is known",
        ),
        (
            {"frontend_conf": {"lfr_m": 1, "lfr_n": 1}},
            r"lfr_m, lfr_n \(1, 1\): only \(7, 6\) can be converted",
        ),
        (
            {"encoder_conf": {**CONFIG["encoder_conf"], "linear_units": 65}},
            "feed_forward.w_1.weight is .64, 32., the",
        ),
        ({"encoder_conf": 3}, "config.yaml: encoder_conf: expected keys with values, found 3"),
    ],
)
def test_another_model_is_refused_in_one_line(
    funasr: Path, tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    change(funasr, **sections)
    with pytest.raises(ValueError, match=message) as caught:
        write_model(convert_model(funasr), tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("am.mvn", "<AddShift> 3", "am.mvn: expected <AddShift> and <Rescale>"),
        ("tokens.json", "{}", "tokens.json: expected a list of tokens"),
        ("tokens.json", '["a"]', "the tokens have no <blank>"),
        ("model.pt", "no weights", "model.pt: no checkpoint that is safe to load"),
        ("config.yaml", "3", "config.yaml: expected keys with values, found int"),
    ],
)
def test_a_damaged_file_is_named(funasr: Path, name: str, content: str, message: str) -> None:
    (funasr / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        convert_model(funasr)


def test_a_missing_file_is_named(funasr: Path) -> None:
    (funasr / "am.mvn").unlink()
    with pytest.raises(FileNotFoundError, match=r"am\.mvn"):
        convert_model(funasr)
