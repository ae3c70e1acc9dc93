"""Paraformer: all tokens of an utterance at once."""

from __future__ import annotations

from wenet_uio.addons.families.paraformer.conf import (
    DECODER_CONFS,
    PREDICTOR_CONFS,
    ParaformerConf,
    fill_width,
)
from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.decode_modes import CTC_MODES, DecodeMode
from wenet_uio.config.family import DecodingRules, ExchangeRules, Family, PartRules, TrainingRules
from wenet_uio.config.named_code import Loaded

_FOLDER = "wenet_uio.addons.families.paraformer"
_AT_ONCE = "the model is a paraformer, whose decoder scores all tokens at once"
_NO_PARAFORMER = "the model is no paraformer"
PARAFORMER = Family(
    name="paraformer",
    section=ParaformerConf,
    build=Loaded(f"{_FOLDER}.model:build"),
    parts=PartRules(
        own={"decoder": DECODER_CONFS, "predictor": PREDICTOR_CONFS},
        defaults={"predictor": "paraformer_predictor"},
        allowed={
            "encoder": ("sanm_encoder",),
            "decoder": tuple(DECODER_CONFS),
            "predictor": ("paraformer_predictor", "cif_predictor"),
        },
        complete=fill_width,
    ),
    training=TrainingRules(inter_ctc=False, text_advice="a paraformer cannot train on it"),
    decoding=DecodingRules(
        modes=(
            *CTC_MODES,
            DecodeMode(
                "paraformer_beam_search",
                Loaded(f"{_FOLDER}.search:decode_with_beam"),
                ("parallel_weight",),
                _NO_PARAFORMER,
            ),
            DecodeMode(
                "paraformer_greedy_search",
                Loaded(f"{_FOLDER}.search:decode_greedily"),
                ("parallel_weight",),
                _NO_PARAFORMER,
            ),
        ),
        recipe_modes=("ctc_greedy_search", "ctc_prefix_beam_search", "paraformer_greedy_search"),
        usual_mode="paraformer_greedy_search",
        usual_scored_mode="paraformer_greedy_search",
        lacks={"attention_weight": _AT_ONCE, "transducer_weight": _AT_ONCE},
    ),
    exchange=ExchangeRules(
        sherpa=Loaded(f"{_FOLDER}.export:sherpa"),
        wenet_obstacle="a paraformer is exported for sherpa-onnx only",
        layouts={
            "funasr": CheckpointLayout(
                "a folder of a Paraformer of FunASR",
                Loaded(f"{_FOLDER}.convert:is_funasr"),
                Loaded(f"{_FOLDER}.convert:from_funasr"),
            )
        },
    ),
)
