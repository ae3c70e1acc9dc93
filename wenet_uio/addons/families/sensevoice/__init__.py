"""SenseVoice-small: CTC with queries of language and form; it only decodes."""

from __future__ import annotations

from wenet_uio.addons.families.sensevoice.conf import SenseVoiceConf
from wenet_uio.config.decode_modes import CTC_MODES
from wenet_uio.config.family import DecodingRules, Family, PartRules, TrainingRules
from wenet_uio.config.named_code import Loaded

_FOLDER = "wenet_uio.addons.families.sensevoice"
SENSEVOICE = Family(
    name="sensevoice_small",
    section=SenseVoiceConf,
    build=Loaded(f"{_FOLDER}.model:build"),
    vocabulary=Loaded(f"{_FOLDER}.model:config_vocabulary"),
    parts=PartRules(allowed={"encoder": ("sanm_encoder_with_tp",), "decoder": (None,)}),
    training=TrainingRules(
        inter_ctc=False, obstacle="sensevoice_small decodes and cannot be trained here"
    ),
    decoding=DecodingRules(
        modes=CTC_MODES,
        lacks={"attention_weight": "the model has no decoder"},
        options=("language", "itn"),
        check_search=Loaded(f"{_FOLDER}.model:check_search"),
        encode=Loaded(f"{_FOLDER}.model:encode_with_queries"),
    ),
)
