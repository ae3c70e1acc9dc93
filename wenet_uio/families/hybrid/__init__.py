"""Hybrid models: an encoder with CTC and an attention decoder, trained together."""

from __future__ import annotations

from wenet_uio.config.decode_modes import ATTENTION_CTC_MODES, RECIPE_MODES
from wenet_uio.config.family import DecodingRules, ExchangeRules, Family
from wenet_uio.config.model import CtcAttentionConf
from wenet_uio.config.named_code import Loaded
from wenet_uio.families.hybrid.conf import ModelConf

DECODING = DecodingRules(
    modes=ATTENTION_CTC_MODES,
    recipe_modes=RECIPE_MODES,
    usual_mode="attention_rescoring",
    usual_scored_mode="attention_rescoring",
)
HYBRID = Family(
    name="asr_model",
    section=ModelConf,
    build=Loaded("wenet_uio.families.hybrid.model:build"),
    decoding=DECODING,
)
FIRERED = Family(
    name="firered",
    section=CtcAttentionConf,
    build=Loaded("wenet_uio.families.hybrid.model:build"),
    decoding=DECODING,
    exchange=ExchangeRules(wenet_labels={"sos": "<sos>", "eos": "<eos>"}),
)
"""FireRedASR. WeNet has a name of its own for it."""
