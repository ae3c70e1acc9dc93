"""Frames with chunks learn from those with full context, by a contrastive loss."""

from __future__ import annotations

from wenet_uio.addons.families.ctl.conf import CtlConf, check_chunks
from wenet_uio.config.decode_modes import ATTENTION_CTC_MODES, RECIPE_MODES
from wenet_uio.config.family import DecodingRules, Family, PartRules, TrainingRules
from wenet_uio.config.named_code import Loaded

CTL = Family(
    name="ctl_model",
    section=CtlConf,
    build=Loaded("wenet_uio.addons.families.ctl.model:build"),
    parts=PartRules(complete=check_chunks),
    training=TrainingRules(
        inter_ctc=False, views_obstacle="ctl_model compares passes of one view; use asr_model"
    ),
    decoding=DecodingRules(
        modes=ATTENTION_CTC_MODES,
        recipe_modes=RECIPE_MODES,
        usual_mode="attention_rescoring",
        usual_scored_mode="attention_rescoring",
    ),
)
