"""FireRedASR: distances, labels with other names, configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.test_golden2 import Golden
from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.embedding import TABLE_LENGTH, FireredPositionalEncoding

KIND = "firered_conformer"
KEYS = {"pos_enc_layer_type": "rel_pos_firered", "selfattention_layer_type": "firered_rel_selfattn"}
SMALL = {
    **KEYS,
    "linear_units": 32,
    "input_layer": "firered_conv2d4",
    "final_norm": False,
    "conv_inner_factor": 4,
}


def test_positions_are_distances_and_go_beyond_the_table() -> None:
    encoding = FireredPositionalEncoding(4, 0.0)
    assert encoding.pe.shape == (1, 2 * TABLE_LENGTH - 1, 4)
    few = encoding.position_encoding(0, 3, torch.zeros(1))
    assert torch.equal(few[0, :, 0], torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0]).sin())
    size = TABLE_LENGTH + 7
    many = encoding.position_encoding(0, size, torch.zeros(1))
    torch.testing.assert_close(many[:, 7:-7], encoding.pe)


def test_it_cannot_stream_and_says_why(make_encoder_model) -> None:
    model = make_encoder_model(KIND, {**SMALL, "use_dynamic_chunk": True, "causal": True})
    with pytest.raises(
        ValueError, match="simulate_streaming: .*needs the positions of the whole utterance"
    ):
        model.encode(torch.randn(1, 80, 40), torch.tensor([80]), 4, 2, simulate_streaming=True)


@torch.no_grad()
def test_lengths_are_those_of_wenet_alone_and_never_more_than_the_frames(
    make_encoder_model,
) -> None:
    model = make_encoder_model(KIND, SMALL)
    lengths = torch.tensor([143, 121, 66, 5, 1, 0])
    encoder_out, found = model.encode(torch.randn(6, 143, 40), lengths)
    assert (encoder_out.size(1), found.tolist()) == (36, [36, 31, 17, 2, 1, 0])
    for length, expected in zip(lengths[:3].tolist(), found.tolist(), strict=False):
        assert model.encode(torch.randn(1, length, 40), torch.tensor([length]))[1].tolist() == [
            expected
        ]


def test_sos_and_eos_have_wenets_names_in_a_train_yaml(golden2: Path, tmp_path: Path) -> None:
    config = load_config(golden2 / "firered/train.yaml", of_model=True)
    assert config.tokenizer_conf.special_tokens == {"<sos>": 3, "<eos>": 4}
    save_config(config, tmp_path / "train.yaml")
    saved = read_yaml(tmp_path / "train.yaml")
    assert saved["tokenizer_conf"]["special_tokens"] == {"sos": 3, "eos": 4}
    assert load_config(tmp_path / "train.yaml").tokenizer_conf == config.tokenizer_conf
    model = Golden(golden2 / "firered").model
    assert (model.sos, model.eos) == (3, 4)


@pytest.mark.parametrize("missing", KEYS)
def test_the_two_keys_that_make_the_encoder_are_required(missing: str) -> None:
    conf: dict[str, Any] = {key: value for key, value in KEYS.items() if key != missing}
    with pytest.raises(
        ConfigError, match=f"^a.yaml: encoder_conf.{missing}: required key is missing$"
    ):
        parse_config({"encoder": KIND, "encoder_conf": conf}, "a.yaml")


def test_other_conformers_do_not_take_its_attention() -> None:
    with pytest.raises(
        ConfigError, match=r"encoder_conf.selfattention_layer_type: .*found 'firered_rel_selfattn'"
    ):
        parse_config({"encoder_conf": KEYS}, "a.yaml")


@torch.no_grad()
def test_a_conformer_may_lack_the_final_norm_and_have_a_wider_convolution(
    make_encoder_model,
) -> None:
    conf = {"linear_units": 32, "causal": True, "cnn_module_kernel": 8, "use_dynamic_chunk": True}
    model = make_encoder_model("conformer", {**conf, "final_norm": False, "conv_inner_factor": 6})
    assert not [name for name in model.state_dict() if name.startswith("encoder.after_norm")]
    assert model.state_dict()["encoder.encoders.0.conv_module.depthwise_conv.weight"].shape == (
        48,
        1,
        8,
    )
    feats, lengths = torch.randn(1, 103, 40), torch.tensor([103])
    masked, _ = model.encode(feats, lengths, 4, 2)
    streamed, _ = model.encode(feats, lengths, 4, 2, simulate_streaming=True)
    torch.testing.assert_close(streamed, masked, atol=1e-4, rtol=1e-4)
