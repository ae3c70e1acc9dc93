"""The operator that limits the band, or encodes and decodes the waveform with loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import torch

from wenet_uio.audio.encoding import Lossy, encode_audio
from wenet_uio.audio.read import read_audio
from wenet_uio.config.augmentation import CodecConf
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.dataset.types import Example, waveform_of

TELEPHONE = 8000
"""Sample rate of mu-law, in Hz."""


@dataclass(frozen=True)
class LossyCodec:
    """Apply a drawn codec or band limit. Codecs clip the waveform at full scale."""

    conf: CodecConf

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length stays."""
        random = Random(f"codec {example.random}")
        if random.random() >= self.conf.prob:
            return example

        waveform, rate = waveform_of(example), example.sample_rate
        codec = random.choice(self.conf.codecs)
        if codec == "band_limit":
            changed = _at_rate(waveform, rate, random.choice(self.conf.band_rates), None)
        else:
            changed = _at_rate(waveform, rate, TELEPHONE if codec == "mulaw" else rate, codec)

        return replace(example, waveform=changed)


def _at_rate(waveform: torch.Tensor, rate: int, lower: int, codec: Lossy | None) -> torch.Tensor:
    """Return what is left of a waveform at a lower rate and after a codec: at its rate, and as long
    as before.

    Args:
        lower: Hz; a rate that is not lower changes nothing.
        codec: None: no codec.
    """
    is_resampled = lower < rate
    changed = resample(waveform, rate, lower) if is_resampled else waveform
    if codec is not None:
        encoded = encode_audio(changed.numpy()[:, None], min(lower, rate), codec)
        changed = torch.from_numpy(read_audio(encoded)[0])
    if is_resampled:
        changed = resample(changed, lower, rate)

    # Filters and codecs change the number of samples a little.
    missing = len(waveform) - len(changed)
    if missing > 0:
        return torch.nn.functional.pad(changed, (0, missing))
    return changed[: len(waveform)]
