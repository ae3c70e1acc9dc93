"""Random changes of features, in training only.

Each operator draws a few numbers from the seed of the sample (`draw`). `__call__` applies them to
the features of one example in a worker; `deferred.py` applies the same numbers to a batch on the
accelerator. `TwoViews` makes the changes twice, for CR-CTC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import torch

from wenet_uio.config.dataset import DatasetConf, SpecAugConf, SpecSubConf, SpecTrimConf
from wenet_uio.dataset.randomness import key_of
from wenet_uio.dataset.types import Example, Operator, feats_of


class Stretch(NamedTuple):
    """Frames or bins from `first` up to, but not including, `end`; `end` may lie beyond the last
    one.
    """

    first: int
    end: int


class Copied(NamedTuple):
    """Frames from `first` up to `end` are replaced by the frames that lie `back` frames earlier."""

    first: int
    end: int
    back: int


class Warp(NamedTuple):
    """The frame `center` of `frames` becomes frame `moved`; the frames on both sides are stretched
    or squeezed.
    """

    center: int
    moved: int
    frames: int


def seed_of_view(seed: int, view: int) -> int:
    """Return the seed of the draws that differ between the views of a sample; view 0 has the seed
    of the sample.
    """
    return key_of(seed, view) >> 1 if view else seed


@dataclass(frozen=True)
class SpecSub:
    """Replace stretches of time by earlier ones (U2++, arXiv:2106.05642)."""

    conf: SpecSubConf

    def draw(self, seed: int, frames: int) -> list[Copied]:
        """Return the stretches to replace."""
        random = Random(f"spec_sub {seed}")
        copied = []
        for _ in range(self.conf.num_t_sub):
            start = random.randrange(frames)
            end = min(frames, start + random.randint(1, self.conf.max_t))
            copied.append(Copied(start, end, random.randint(0, start)))

        return copied

    def __call__(self, example: Example) -> Example:
        """Change `feats`; their number of frames stays."""
        original = feats_of(example)
        feats = original.clone()
        for first, end, back in self.draw(seed_of_view(example.random, example.view), len(feats)):
            feats[first:end] = original[first - back : end - back]
        return replace(example, feats=feats)


@dataclass(frozen=True)
class SpecTrim:
    """Cut frames from the end; more than half of the frames remain. All views of a sample have the
    same cut.
    """

    conf: SpecTrimConf

    def draw(self, seed: int, frames: int) -> int:
        """Return the number of frames to cut."""
        cut = Random(f"spec_trim {seed}").randint(1, self.conf.max_t)
        return 0 if cut >= frames / 2 else cut

    def __call__(self, example: Example) -> Example:
        """Shorten `feats`."""
        feats = feats_of(example)
        return replace(example, feats=feats[: len(feats) - self.draw(example.random, len(feats))])


@dataclass(frozen=True)
class SpecAug:
    """Set stretches of time and bands of frequency to zero, after a time warp (SpecAugment,
    arXiv:1904.08779).

    All views of a sample have the same warp, so that their frames belong together.
    """

    conf: SpecAugConf
    warps_time: bool = False

    def draw(self, seed: int, frames: int, bins: int) -> tuple[list[Stretch], list[Stretch]]:
        """Return masks of time and masks of frequency."""
        random = Random(f"spec_aug {seed}")
        masks: list[list[Stretch]] = []
        for number, size, longest in (
            (self.conf.num_t_mask, frames, self.conf.max_t),
            (self.conf.num_f_mask, bins, self.conf.max_f),
        ):
            starts = ((random.randrange(size), random.randint(1, longest)) for _ in range(number))
            masks.append([Stretch(start, start + length) for start, length in starts])

        return masks[0], masks[1]

    def draw_warps(self, seed: int, frames: int) -> tuple[Warp, ...]:
        """Return the time warp, if it is on. A short utterance has a warp that moves nothing."""
        if not self.warps_time:
            return ()

        random, most = Random(f"time_warp {seed}"), self.conf.max_w
        if frames <= 2 * most:
            return (Warp(1, 1, frames),)

        center = random.randrange(most, frames - most)
        return (Warp(center, center + random.randint(1 - most, most - 1), frames),)

    def __call__(self, example: Example) -> Example:
        """Change `feats`; their shape stays."""
        feats = feats_of(example).clone()
        for warp in self.draw_warps(example.random, len(feats)):
            feats = warped(feats[None], torch.tensor([warp]))[0]

        times, bands = self.draw(seed_of_view(example.random, example.view), *feats.shape)
        array = feats.numpy()  # of the same memory: its slices take less time
        for first, end in times:
            array[first:end] = 0
        for first, end in bands:
            array[:, first:end] = 0

        return replace(example, feats=feats)


def warped(feats: torch.Tensor, warps: torch.Tensor) -> torch.Tensor:
    """Move the frames of feats (B, T, F) in time, with linear interpolation between frames.

    Args:
        warps: (B, 3) for each utterance a frame, the frame to which it moves, and the number of
            frames. The frames before and behind it are stretched or squeezed evenly.
    """
    center, moved, num_frames = warps.float()[:, :, None].unbind(1)
    frame = torch.arange(feats.size(1), device=feats.device)

    # (B, T) where each frame comes from, as a fraction: frames 0 to `moved` from 0 to `center`, the
    # others from `center` to the end.
    source_before = frame * (center / moved)
    stretch_behind = (num_frames - center) / (num_frames - moved).clamp(min=1)
    source_behind = center + (frame - moved) * stretch_behind
    source = torch.where(frame < moved, source_before, source_behind)
    source = torch.minimum(source, num_frames - 1)

    # The two frames that the fraction lies between
    lower = source.floor()
    upper = torch.minimum(lower + 1, num_frames - 1)
    share_of_upper = (source - lower).to(feats.dtype)[:, :, None]
    lower_feats, upper_feats = (
        feats.gather(1, frames.long()[:, :, None].expand_as(feats)) for frames in (lower, upper)
    )
    return torch.lerp(lower_feats, upper_feats, share_of_upper)


class Augmentations(NamedTuple):
    """The operators of this module in the order in which they run; None for those that are off."""

    spec_aug: SpecAug | None = None
    spec_sub: SpecSub | None = None
    spec_trim: SpecTrim | None = None


def augmentations(conf: DatasetConf, *, training: bool) -> Augmentations:
    """Return the operators that `conf` switches on; evaluation has none."""
    if not training:
        return Augmentations()

    masks = {"num_t_mask": round(conf.views.time_mask_ratio * conf.spec_aug_conf.num_t_mask)}
    if not conf.spec_aug:  # time_warp alone
        masks = {"num_t_mask": 0, "num_f_mask": 0}

    spec_aug = spec_sub = spec_trim = None
    if conf.spec_aug or conf.time_warp:
        spec_aug = SpecAug(conf.spec_aug_conf.model_copy(update=masks), conf.time_warp)
    if conf.spec_sub:
        spec_sub = SpecSub(conf.spec_sub_conf)
    if conf.spec_trim:
        spec_trim = SpecTrim(conf.spec_trim_conf)

    return Augmentations(spec_aug, spec_sub, spec_trim)


@dataclass(frozen=True)
class TwoViews:
    """Runs the operators that augment features twice, with other draws.

    Spec_aug and spec_sub draw from `Example.random` and `Example.view`. Operators of the user that
    draw from `Example.random` alone make the same draws for both views.
    """

    operators: tuple[Operator, ...]

    def __call__(self, example: Example) -> Example:
        """Change `feats` to the first view and set `other_feats` to the second.

        Raises:
            ValueError: an operator gives the views different lengths.
        """
        first, second = self._make_view(example, 0), self._make_view(example, 1)
        lengths = len(feats_of(first)), len(feats_of(second))
        if lengths[0] != lengths[1]:
            raise ValueError(
                f"{example.key}: its two views have {lengths[0]} and {lengths[1]} frames; an "
                "operator after spec_aug that changes the length must not depend on Example.view "
                "or on the features"
            )

        return replace(first, other_feats=feats_of(second))

    def _make_view(self, example: Example, view: int) -> Example:
        example = replace(example, view=view)
        for operator in self.operators:
            example = operator(example)
        return example
