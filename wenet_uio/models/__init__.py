"""Neural networks of the recogniser: encoders, decoders, CTC, transducer, and the model that
combines them.
"""

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.build import build_model, build_trained

__all__ = ["ASRModel", "build_model", "build_trained"]
