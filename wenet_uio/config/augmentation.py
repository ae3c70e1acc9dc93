"""Sections of `dataset_conf` that change waveforms in training. A section that is absent (null) is
off.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from wenet_uio.config.base import AboveZero, Positive, Probability, Section, ZeroOrMore


def _ascending(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] > bounds[1]:
        raise ValueError(
            f"the lower bound {bounds[0]:g} comes first, then the upper bound {bounds[1]:g}"
        )
    return bounds


Decibels = Annotated[tuple[float, float], AfterValidator(_ascending)]
"""Lowest and highest value in dB; values between are drawn with equal probability."""
Rt60 = Annotated[float, Field(ge=0.05, le=0.7)]
Rate = Annotated[int, Field(ge=2000)]
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
    """Kinds of noise that need no list. babble: other utterances of the training data, added up.
    white, pink, brown: random noise whose power per Hz falls by 0, 3 and 6 dB per octave. One kind
    is drawn for each utterance, all with equal probability; the list counts as one more kind."""
    talkers: Annotated[tuple[Positive, Positive], AfterValidator(_ascending)] = (3, 5)
    """Lowest and highest number of utterances of a babble."""

    @model_validator(mode="after")
    def _has_noise(self) -> NoiseConf:
        if self.data_list is None and not self.made:
            raise ValueError("there is no noise; give data_list, or made: [babble, pink]")
        return self


class ReverbConf(Section):
    """Reverberation by impulse responses: of a list, or of simulated rooms."""

    prob: Probability = 0.5
    """Share of the utterances that get reverberation."""
    data_list: str | None = None
    """List of recorded impulse responses; null: shoebox rooms are simulated."""
    data_type: Literal["raw", "shard"] = "raw"
    """Type of `data_list`."""
    rooms: Positive = 100
    """Number of simulated rooms, of which one is drawn for each utterance. A worker computes a room
    once."""
    rt60: Annotated[tuple[Rt60, Rt60], AfterValidator(_ascending)] = (0.1, 0.5)
    """Shortest and longest reverberation time of simulated rooms, in seconds: the sound falls by 60
    dB."""


class OverlapConf(Section):
    """A second utterance of the training data in the background. The text remains that of the
    first.
    """

    prob: Probability = 0.2
    """Share of the utterances that get a second one."""
    ratio: Decibels = (10.0, 20.0)
    """Power of the utterance over that of the second one."""


Codec = Literal["band_limit", "mulaw", "opus", "mp3"]


class CodecConf(Section):
    """Loss of a band limit or of a codec."""

    prob: Probability = 0.3
    """Share of the utterances that are changed."""
    codecs: Annotated[tuple[Codec, ...], Field(min_length=1)] = ("band_limit", "mulaw")
    """One is drawn for each utterance. band_limit: resampled to a lower rate and back. mulaw: G.711
    at 8 kHz. opus and mp3: encoded and decoded at the sample rate of the training."""
    band_rates: Annotated[tuple[Rate, ...], Field(min_length=1)] = (8000,)
    """Sample rates of band_limit in Hz, of which one is drawn; the band ends at half the rate."""


class GainConf(Section):
    """Another level of the utterance."""

    prob: Probability = 1.0
    """Share of the utterances whose level changes."""
    gain: Decibels = (-12.0, 6.0)
    """Samples that become louder than full scale are clipped, as a recorder does."""


class TrimConf(Section):
    """Cut silence before and after the speech, as NeMo's `trim_silence` and librosa's `trim`."""

    top_db: AboveZero = 60.0
    """Frames this many dB or more below the loudest frame of the utterance are silence."""


class QuietConf(Section):
    """Another length of the quiet before and behind the speech: what is too long is cut, what is
    missing is added. A model that has heard quiet finds no words in it.
    """

    prob: Probability = 0.7
    """Share of the utterances whose quiet changes."""
    seconds: Annotated[tuple[ZeroOrMore, ZeroOrMore], AfterValidator(_ascending)] = (0.0, 0.8)
    """Shortest and longest quiet, drawn for each end."""
    level: Decibels = (-75.0, -45.0)
    """White noise under the whole utterance, in dB of full scale. A quarter of the utterances has
    none, so that added quiet is digital silence."""


class ShiftConf(Section):
    """Move the utterance in time; its length stays, zeros fill the gap. As `shift` of NeMo."""

    prob: Probability = 1.0
    """Share of the utterances that are moved."""
    milliseconds: Annotated[tuple[float, float], AfterValidator(_ascending)] = (-5.0, 5.0)
    """Lowest and highest value; above 0, the utterance begins earlier. Utterances that are shorter
    than the drawn time stay."""


class WhiteNoiseConf(Section):
    """White noise of an absolute level, whatever the level of the utterance. As `white_noise` of
    NeMo.
    """

    prob: Probability = 1.0
    """Share of the utterances that get noise."""
    level: Annotated[tuple[int, int], AfterValidator(_ascending)] = (-90, -46)
    """Lowest and highest level in dB of full scale, root mean square; whole numbers are drawn."""


class AugmentationKeys(Section):
    """Keys of `dataset_conf`, in the order in which they run. Each is drawn by seed, epoch and
    sample.
    """

    trim_conf: TrimConf | None = None
    """Silence cut at both ends, before `speed_perturb`; the sections below come after it."""
    quiet_conf: QuietConf | None = None
    shift_conf: ShiftConf | None = None
    reverb_conf: ReverbConf | None = None
    overlap_conf: OverlapConf | None = None
    noise_conf: NoiseConf | None = None
    white_noise_conf: WhiteNoiseConf | None = None
    codec_conf: CodecConf | None = None
    gain_conf: GainConf | None = None
