"""Encoders, decoders, CTC, and the model they make."""

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.build import build_model

__all__ = ["ASRModel", "build_model"]
