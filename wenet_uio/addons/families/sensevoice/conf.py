"""`model_conf` of SenseVoice-small. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wenet_uio.config.model import HybridConf


class SenseVoiceConf(HybridConf):
    """SenseVoice-small is a CTC model."""

    stacked_frames: ClassVar[int] = 7
    ctc_weight: Annotated[float, Field(ge=1.0, le=1.0)] = 1.0
    apply_non_blank_embedding: Literal[False] = False
