"""Which parts a kind of model can have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.config import ConfigError, parse_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder": "conformer", "encoder_conf": {}},
            "encoder: conformer: model paraformer needs encoder: sanm_enc",
        ),
        (
            {"decoder": "transformer", "decoder_conf": {}},
            "decoder: transformer: model paraformer needs decoder: sanm",
        ),
        (
            {"predictor": "rnn"},
            "predictor: rnn: model paraformer needs predictor: paraformer_predictor or cif_pred",
        ),
        ({"model": "asr_model"}, "decoder: sanm_decoder: only model paraformer has this decoder"),
        (
            {"predictor_conf": {"idim": 17}},
            "predictor_conf.idim: 17, but encoder_conf.output_size is 16",
        ),
        ({"joint": "transducer_joint"}, "joint: only a transducer has this key"),
        ({"decoder": None}, "decoder: None: model paraformer needs decoder: sanm_decoder"),
        (
            {"predictor_conf": {"threshold": 2}},
            r"predictor_conf.threshold: expected a number less than or equal to 1",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_line(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"^a.yaml: {message}"):
        parse_config(tiny_paraformer(**changes), "a.yaml")
