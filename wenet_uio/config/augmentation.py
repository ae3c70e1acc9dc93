"""Sections of `dataset_conf` that change waveforms in training. A section that is absent (null) is off."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from wenet_uio.config.base import Section
from wenet_uio.config.batch import Positive, Probability


def _ascending(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"the lower bound {bounds[0]:g} comes first, then the upper bound {bounds[1]:g}")
    return bounds


Decibels = Annotated[tuple[float, float], AfterValidator(_ascending)]
"""Lowest and highest value in dB; values between are drawn with equal probability."""
Made = Literal["babble", "white", "pink", "brown"]


class NoiseConf(Section):
    """Additive noise: from a list, or made without a list."""

    prob: Probability = 0.5
    """Share of the utterances that get noise."""
    snr: Decibels = (5.0, 20.0)
    """Power of the utterance over that of the noise, both as means over the whole utterance."""
    data_list: str | None = None
    """List of recordings of noise."""
    data_type: Literal["raw", "shard"] = "raw"
    """Type of `data_list`."""
    made: tuple[Made, ...] = ()
    """Kinds of noise that need no list. babble: other utterances of the training data, added up. white, pink, brown:
    random noise whose power per Hz falls by 0, 3 and 6 dB per octave. One kind is drawn for each utterance, all with
    equal probability; the list counts as one more kind."""
    talkers: Annotated[tuple[Positive, Positive], AfterValidator(_ascending)] = (3, 5)
    """Lowest and highest number of utterances of a babble."""

    @model_validator(mode="after")
    def _has_noise(self) -> NoiseConf:
        if self.data_list is None and not self.made:
            raise ValueError("there is no noise; give data_list, or made: [babble, pink]")
        return self


class GainConf(Section):
    """Another level of the utterance."""

    prob: Probability = 1.0
    """Share of the utterances whose level changes."""
    gain: Decibels = (-12.0, 6.0)
    """Samples that become louder than full scale are clipped, as a recorder does."""


class AugmentationKeys(Section):
    """Keys of `dataset_conf`, in the order in which they run. Each is drawn by seed, epoch and sample."""

    noise_conf: NoiseConf | None = None
    gain_conf: GainConf | None = None
