"""Features that are left to the accelerator: what workers send in their place, and how a batch of them is made there.

    worker       Defer: counts the frames, draws what augmentation does to them -> `Deferred` of an Example
                 defer_batch: padded waveforms and the draws -> `DeferredFeatures` of a Batch
    accelerator  DeferredFeatures.compute: dither, features, spec-aug, spec-sub, spec-trim -> (B, T, F)

Everything is drawn from the sample's own seed, by the operators that workers would use: the features are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

from wenet_uio.config.dataset import DatasetConf, FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.batch_memory import empty_tensors
from wenet_uio.dataset.chain.augment import Copied, SpecAug, SpecSub, SpecTrim, Stretch
from wenet_uio.dataset.chain.dither import white_noise
from wenet_uio.dataset.chain.fbank import batch_fbank, batch_log_mel_spectrogram, batch_mfcc
from wenet_uio.dataset.chain.features import require_frames
from wenet_uio.dataset.frames import FrameCount, frame_count
from wenet_uio.dataset.types import Example


@dataclass(frozen=True)
class Recipe:
    """What is to be computed."""

    conf: FbankConf | MfccConf | LogMelSpectrogramConf
    sample_rate: int
    """Hz."""
    dim: int
    """Features of a frame."""
    dither: float


@dataclass(frozen=True)
class Deferred:
    """What is to become of one example."""

    recipe: Recipe
    frames: int
    """After spec-trim."""
    times: Sequence[Stretch] = ()
    bands: Sequence[Stretch] = ()
    copied: Sequence[Copied] = ()


@dataclass(frozen=True)
class Defer:
    """In place of features: what is needed to compute them elsewhere."""

    recipe: Recipe
    frame_count: FrameCount
    spec_aug: SpecAug | None = None
    spec_sub: SpecSub | None = None
    spec_trim: SpecTrim | None = None

    @classmethod
    def of(cls, conf: DatasetConf, *, training: bool) -> Defer:
        feats = getattr(conf, f"{conf.feats_type}_conf")
        recipe = Recipe(
            feats,
            conf.resample_conf.resample_rate,
            conf.feature_dim,
            feats.dither if training and isinstance(feats, FbankConf) else 0.0,
        )
        return cls(
            recipe,
            frame_count(conf),
            SpecAug(conf.spec_aug_conf) if training and conf.spec_aug else None,
            SpecSub(conf.spec_sub_conf) if training and conf.spec_sub else None,
            SpecTrim(conf.spec_trim_conf) if training and conf.spec_trim else None,
        )

    def __call__(self, example: Example) -> Example:
        frames = int(self.frame_count(example.waveform.numel()))
        require_frames(frames, example)
        seed = example.random
        times, bands = self.spec_aug.draw(seed, frames, self.recipe.dim) if self.spec_aug else ((), ())
        copied = self.spec_sub.draw(seed, frames) if self.spec_sub else ()
        if self.spec_trim:
            frames -= self.spec_trim.draw(seed, frames)
        return replace(example, deferred=Deferred(self.recipe, frames, times, bands, copied))


@dataclass(frozen=True)
class DeferredFeatures:
    """What the features of a batch are computed from."""

    recipe: Recipe
    waveforms: torch.Tensor
    """(B, samples) on the scale of int16, padded with 0; int16 where all are so stored, else float32."""
    lengths: torch.Tensor
    """(B,) int64, samples."""
    seeds: torch.Tensor
    """(B,) int64, of the dither."""
    times: torch.Tensor
    """(B, masks, 2) int64: frames from, up to."""
    bands: torch.Tensor
    """(B, masks, 2) int64: bins from, up to."""
    copied: torch.Tensor
    """(B, copies, 3) int64: frames from, up to, and how far back their source is."""

    def tensors(self) -> dict[str, torch.Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "recipe"}

    @torch.no_grad()
    def compute(self, feats_lengths: torch.Tensor, frames: int) -> torch.Tensor:
        """Features (B, frames, dim), 0 beyond `feats_lengths` (B,); nothing here waits for the device."""
        conf, rate = self.recipe.conf, self.recipe.sample_rate
        waveforms = self.waveforms.float()
        if self.recipe.dither:
            waveforms = waveforms.add(white_noise(self.seeds, waveforms.size(1)), alpha=self.recipe.dither)
            sample = torch.arange(waveforms.size(1), device=waveforms.device)
            waveforms.masked_fill_(sample >= self.lengths[:, None], 0)
        batched = {FbankConf: batch_fbank, MfccConf: batch_mfcc, LogMelSpectrogramConf: batch_log_mel_spectrogram}
        feats = batched[type(conf)](waveforms, self.lengths, rate, conf)[:, :frames]
        frame, bin_ = (torch.arange(size, device=feats.device) for size in feats.shape[1:])
        feats = feats.masked_fill(_within(frame, self.times)[:, :, None] | _within(bin_, self.bands)[:, None], 0)
        if self.copied.size(1):
            source = frame.expand(len(feats), -1)
            for copied in self.copied.unbind(1):
                first, end, back = copied[..., None].unbind(1)
                source = torch.where((frame >= first) & (frame < end), frame - back, source)
            feats = feats.gather(1, source[:, :, None].expand_as(feats))
        return feats.masked_fill_((frame >= feats_lengths[:, None])[:, :, None], 0)


def defer_batch(examples: Sequence[Example]) -> DeferredFeatures:
    """Padded waveforms and draws of examples that `Defer` has seen."""
    waveforms = [example.waveform for example in examples]
    whole = all(waveform.dtype == torch.int16 for waveform in waveforms)
    deferred = [example.deferred for example in examples]
    rows, lengths = len(examples), [waveform.numel() for waveform in waveforms]
    tables = {"lengths": lengths, "seeds": [example.random for example in examples]}
    shapes = {}
    for name, columns in (("times", 2), ("bands", 2), ("copied", 3)):
        tables[name] = [getattr(each, name) for each in deferred]
        shapes[name] = (rows, len(tables[name][0]), columns)
    tensors = empty_tensors(
        {
            "waveforms": ((rows, max(lengths)), torch.int16 if whole else torch.float32),
            **{name: (shapes.get(name, (rows,)), torch.int64) for name in tables},
        }
    )
    for row, length, waveform in zip(tensors["waveforms"], lengths, waveforms, strict=True):
        row[:length] = waveform
        row[length:] = 0
    for name, table in tables.items():
        tensors[name].copy_(torch.tensor(table, dtype=torch.int64).view(tensors[name].shape))
    return DeferredFeatures(deferred[0].recipe, **tensors)


def _within(places: torch.Tensor, stretches: torch.Tensor) -> torch.Tensor:
    """(B, places): whether each of `places` (places,) is in one of the `stretches` (B, n, 2)."""
    first, end = stretches[..., None].unbind(2)
    return ((places >= first) & (places < end)).any(1)
