"""Neural networks of the recogniser: encoders, decoders, CTC, transducer, and the model that
combines them.

The names below are loaded when they are used: the sections of encoders, which a config needs, do
not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wenet_uio.base.imports import loads_when_used

if TYPE_CHECKING:
    from wenet_uio.models.asr_model import ASRModel
    from wenet_uio.models.build import build_model, build_trained

__all__ = ["ASRModel", "build_model", "build_trained"]

__getattr__ = loads_when_used(
    __name__,
    {"ASRModel": "asr_model", **dict.fromkeys(("build_model", "build_trained"), "build")},
)


def __dir__() -> list[str]:
    return __all__
