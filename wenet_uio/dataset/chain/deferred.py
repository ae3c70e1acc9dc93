"""Deferred features: a worker sends waveforms, and the accelerator computes the features of a whole
batch.

    worker       Defer: counts the frames and draws the augmentation of an Example -> `ExampleDraws`
                 defer_batch: pads the waveforms and collects the draws -> `PaddedWaveforms` of a
                 Batch
    accelerator  PaddedWaveforms.compute: dither, features, spec_aug, spec_sub, spec_trim -> (B, T,
    F)

All draws use the seed of the sample and the operators of the workers, so the features equal those
of the workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch

from wenet_uio.config.dataset import DatasetConf, FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.batch_memory import empty_tensors
from wenet_uio.dataset.chain.augment import (
    Augmentations,
    Copied,
    Stretch,
    Warp,
    augmentations,
    seed_of_view,
    warped,
)
from wenet_uio.dataset.chain.fbank import batch_fbank, batch_log_mel_spectrogram, batch_mfcc
from wenet_uio.dataset.chain.features import require_frames, white_noise
from wenet_uio.dataset.lengths import FrameCount, frame_count
from wenet_uio.dataset.types import Example, waveform_of


@dataclass(frozen=True)
class FeatureSettings:
    """Which features to compute."""

    conf: FbankConf | MfccConf | LogMelSpectrogramConf
    sample_rate: int
    """Hz."""
    dim: int
    """Features per frame."""
    dither: float
    """Standard deviation of the noise, on the scale of int16; 0 adds no noise."""

    @classmethod
    def of(cls, conf: DatasetConf, *, training: bool) -> FeatureSettings:
        """Return the features that `conf` selects; only training adds dither, and may leave out
        padding.
        """
        confs = {
            "fbank": conf.fbank_conf,
            "mfcc": conf.mfcc_conf,
            "log_mel_spectrogram": conf.log_mel_spectrogram_conf.for_use(training=training),
        }
        feats = confs[conf.feats_type]
        dither = feats.dither if training and isinstance(feats, FbankConf) else 0.0
        return cls(feats, conf.resample_conf.resample_rate, conf.feature_dim, dither)


class ViewDraws(NamedTuple):
    """The augmentation of one view of an example."""

    times: Sequence[Stretch]
    bands: Sequence[Stretch]
    copied: Sequence[Copied]


@dataclass(frozen=True)
class ExampleDraws:
    """Number of frames of one example, and its augmentation."""

    settings: FeatureSettings
    frames: int
    """Frames after spec_trim."""
    views: tuple[ViewDraws, ...]
    warps: tuple[Warp, ...] = ()
    """The time warp of all views; empty if it is off."""


@dataclass(frozen=True)
class Defer:
    """Replaces the operators that compute and augment features: it keeps the waveform and adds
    `ExampleDraws`.
    """

    settings: FeatureSettings
    frame_count: FrameCount
    augment: Augmentations
    views: int
    """Views of each example."""

    @classmethod
    def of(cls, conf: DatasetConf, *, training: bool) -> Defer:
        """Return the operator for the features and the augmentation that `conf` selects; evaluation
        has no augmentation.
        """
        settings = FeatureSettings.of(conf, training=training)
        views = conf.views.number if training else 1
        frames = frame_count(conf, training=training)
        return cls(settings, frames, augmentations(conf, training=training), views)

    def __call__(self, example: Example) -> Example:
        """Add `deferred`.

        Raises:
            SkipSample: the waveform is too short for a frame.
        """
        frames = int(self.frame_count(waveform_of(example).numel()))
        require_frames(frames, example)
        view_draws = tuple(
            self._draw_view(seed_of_view(example.random, view), frames)
            for view in range(self.views)
        )
        warps: tuple[Warp, ...] = ()
        if self.augment.spec_aug:
            warps = self.augment.spec_aug.draw_warps(example.random, frames)
        if self.augment.spec_trim:
            frames -= self.augment.spec_trim.draw(example.random, frames)

        return replace(example, deferred=ExampleDraws(self.settings, frames, view_draws, warps))

    def _draw_view(self, seed: int, frames: int) -> ViewDraws:
        """Draw the augmentation of one view of an utterance."""
        spec_aug, spec_sub, _ = self.augment
        times, bands = spec_aug.draw(seed, frames, self.settings.dim) if spec_aug else ((), ())
        return ViewDraws(times, bands, spec_sub.draw(seed, frames) if spec_sub else ())


@dataclass(frozen=True)
class PaddedWaveforms:
    """The waveforms of a batch and the draws for its examples, from which its features are
    computed.
    """

    settings: FeatureSettings
    waveforms: torch.Tensor
    """(B, samples) on the scale of int16, padded with 0; int16 if all waveforms are int16, else
    float32."""
    lengths: torch.Tensor
    """(B,) int64, samples."""
    seeds: torch.Tensor
    """(B,) int64, seeds of the dither."""
    times: torch.Tensor
    """(B, views, masks, 2) int64: first frame, one past the last."""
    bands: torch.Tensor
    """(B, views, masks, 2) int64: first bin, one past the last."""
    copied: torch.Tensor
    """(B, views, copies, 3) int64: first frame, one past the last, distance back to the source."""
    warps: torch.Tensor
    """(B, warps, 3) int64: see `Warp`; there is one warp, or none."""

    @property
    def dim(self) -> int:
        """Features per frame."""
        return self.settings.dim

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by name; the first dimension of each is B."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "settings"
        }

    def with_tensors(self, tensors: Mapping[str, torch.Tensor | None]) -> PaddedWaveforms:
        """Return a copy with other tensors, such as those on another device."""
        return replace(self, **tensors)

    @torch.no_grad()
    def compute(self, feats_lengths: torch.Tensor, frames: int) -> tuple[torch.Tensor, ...]:
        """Return features (B, frames, dim) of each view, 0 beyond `feats_lengths` (B,).

        The call does not wait for the device.
        """
        waveforms = self.waveforms.float()
        if self.settings.dither:
            waveforms = waveforms.add(
                white_noise(self.seeds, waveforms.size(1)), alpha=self.settings.dither
            )
            sample = torch.arange(waveforms.size(1), device=waveforms.device)
            waveforms.masked_fill_(sample >= self.lengths[:, None], 0)

        feats = _batch_features(self.settings, waveforms, self.lengths)
        for warps in self.warps.unbind(1):
            feats = warped(feats, warps)

        feats = feats[:, :frames]
        return tuple(
            self._augment_feats(feats, feats_lengths, view) for view in range(self.times.size(1))
        )

    def _augment_feats(
        self, feats: torch.Tensor, feats_lengths: torch.Tensor, view: int
    ) -> torch.Tensor:
        """Apply the draws of a view to features (B, T, F): masks, then copied stretches."""
        frame, bin_ = (torch.arange(size, device=feats.device) for size in feats.shape[1:])
        masked = (
            _mask_stretches(frame, self.times[:, view])[:, :, None]
            | _mask_stretches(bin_, self.bands[:, view])[:, None]
        )
        feats = feats.masked_fill(masked, 0)

        if self.copied.size(2):
            # Each copy reads the features as they were masked, not those of an earlier copy, so all
            # of them are one gather: `source` is the frame that each frame comes from.
            source = frame.expand(len(feats), -1)
            for copied in self.copied[:, view].unbind(1):
                first, end, back = copied[..., None].unbind(1)
                source = torch.where((frame >= first) & (frame < end), frame - back, source)
            feats = feats.gather(1, source[:, :, None].expand_as(feats))

        return feats.masked_fill_((frame >= feats_lengths[:, None])[:, :, None], 0)


def defer_batch(examples: Sequence[Example]) -> PaddedWaveforms:
    """Pad the waveforms and collect the draws of examples that `Defer` has processed."""
    waveforms = [waveform_of(example) for example in examples]
    draws = [_draws_of(example) for example in examples]
    lengths = [waveform.numel() for waveform in waveforms]
    numbers: dict[str, list] = {
        "lengths": lengths,
        "seeds": [example.random for example in examples],
    }
    rows = (len(examples),)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(numbers, rows)
    # All examples have as many draws as the first: their numbers are those of the config.
    for name, columns in (("times", 2), ("bands", 2), ("copied", 3)):
        numbers[name] = []
        for draw in draws:
            numbers[name].append([getattr(view, name) for view in draw.views])
        shapes[name] = (*rows, len(numbers[name][0]), len(numbers[name][0][0]), columns)

    numbers["warps"] = [draw.warps for draw in draws]
    shapes["warps"] = (*rows, len(draws[0].warps), 3)

    is_int16 = all(waveform.dtype == torch.int16 for waveform in waveforms)
    dtype = torch.int16 if is_int16 else torch.float32
    described = {"waveforms": ((*rows, max(lengths)), dtype)}
    tensors = empty_tensors(
        described | {name: (shape, torch.int64) for name, shape in shapes.items()}
    )
    _fill_waveforms(tensors["waveforms"], waveforms)
    for name, values in numbers.items():
        tensors[name].copy_(torch.tensor(values, dtype=torch.int64).view(tensors[name].shape))

    return PaddedWaveforms(draws[0].settings, **tensors)


def _fill_waveforms(padded: torch.Tensor, waveforms: Sequence[torch.Tensor]) -> None:
    for row, waveform in zip(padded, waveforms, strict=True):
        row[: len(waveform)] = waveform
        row[len(waveform) :] = 0


def _draws_of(example: Example) -> ExampleDraws:
    assert isinstance(example.deferred, ExampleDraws)  # pad defers a batch only after Defer
    return example.deferred


def _batch_features(
    settings: FeatureSettings, waveforms: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Compute the features of waveforms (B, samples) of these lengths (B,) -> (B, T, F)."""
    conf, rate = settings.conf, settings.sample_rate
    if isinstance(conf, LogMelSpectrogramConf):
        return batch_log_mel_spectrogram(waveforms, lengths, rate, conf)
    if isinstance(conf, MfccConf):  # before FbankConf, its base class
        return batch_mfcc(waveforms, lengths, rate, conf)

    return batch_fbank(waveforms, lengths, rate, conf)


def _mask_stretches(places: torch.Tensor, stretches: torch.Tensor) -> torch.Tensor:
    """Return (B, places): whether each of `places` (places,) lies in one of the `stretches` (B, n,
    2).
    """
    first, end = stretches[..., None].unbind(2)
    return ((places >= first) & (places < end)).any(1)
