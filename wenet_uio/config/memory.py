"""Keys of the memory that SANM encoders and decoders have. Keys and defaults are WeNet's."""

from __future__ import annotations

from pydantic import model_validator

from wenet_uio.config.base import Section
from wenet_uio.config.encoder import NotNegative, Positive


class MemoryConf(Section):
    """The memory of a SANM layer: a depthwise convolution over frames or tokens."""

    kernel_size: Positive = 11
    """Frames or tokens."""
    sanm_shfit: NotNegative = 0
    """Frames by which the kernel is shifted to the past. WeNet spells this key so."""

    @model_validator(mode="after")
    def _kernel_reaches_the_frame(self) -> MemoryConf:
        if self.past >= self.kernel_size:
            raise ValueError(
                f"sanm_shfit {self.sanm_shfit} moves the kernel of {self.kernel_size} away from "
                "its frame"
            )
        return self

    @property
    def past(self) -> int:
        """Frames that the kernel sees before its frame."""
        return (self.kernel_size - 1) // 2 + self.sanm_shfit
