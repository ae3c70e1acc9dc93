"""The transducer (RNN-T): predictor, joint network, loss and searches."""

from __future__ import annotations

from wenet_uio.config.decode_modes import ATTENTION_CTC_MODES, DecodeMode
from wenet_uio.config.family import DecodingRules, Family, PartRules, TrainingRules
from wenet_uio.config.named_code import Loaded
from wenet_uio.families.transducer.conf import (
    JOINT_CONFS,
    PREDICTOR_CONFS,
    TransducerConf,
    fill_widths,
)

_SEARCH = "wenet_uio.families.transducer.search"
TRANSDUCER = Family(
    name="transducer",
    section=TransducerConf,
    build=Loaded("wenet_uio.families.transducer.model:build"),
    parts=PartRules(
        own={"predictor": PREDICTOR_CONFS, "joint": JOINT_CONFS},
        defaults={"predictor": "rnn", "joint": "transducer_joint"},
        allowed={"predictor": tuple(PREDICTOR_CONFS)},
        complete=fill_widths,
    ),
    training=TrainingRules(text_advice="give it a weight in model_conf (attention_weight above 0)"),
    decoding=DecodingRules(
        modes=(
            *ATTENTION_CTC_MODES,
            DecodeMode(
                "rnnt_beam_search",
                Loaded(f"{_SEARCH}:decode_with_beam"),
                ("transducer_weight",),
                scored=True,
            ),
            DecodeMode(
                "rnnt_greedy_search", Loaded(f"{_SEARCH}:decode_greedily"), ("transducer_weight",)
            ),
        ),
        recipe_modes=(
            *("ctc_greedy_search", "rnnt_greedy_search", "rnnt_beam_search"),
            "attention_rescoring",
        ),
        usual_mode="rnnt_greedy_search",
        usual_scored_mode="rnnt_beam_search",
        check_search=Loaded(f"{_SEARCH}:check_search"),
    ),
)
