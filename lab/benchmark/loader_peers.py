"""The loaders that loader.py compares with ours: WebDataset and Lhotse, set up as their users
do.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import soundfile
import torch

from wenet_uio.config.dataset import SpecAugConf
from wenet_uio.dataset.chain.augment import SpecAug
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.types import Example

RATE, BINS, MAX_FRAMES = 16000, 80, 12000
SHUFFLE, SORT = 1500, 500
"""Utterances in the shuffle buffer and the sort buffer; WeNet's loader has these sizes."""

Counted = tuple[float, int, int]
"""Figures of a batch: seconds, frames without padding, frames with padding."""


def webdataset_batches(folder: Path, workers: int) -> Iterator[Counted]:
    """Read shards with WebDataset: decode, torchaudio's fbank, spec-aug, shuffle, sort in a buffer,
    dynamic batches.
    """
    try:
        from webdataset.compat import WebDataset
    except ImportError as error:
        raise ValueError(f"{error}; to compare with it: pip install webdataset") from None

    from torchaudio.compliance import kaldi

    spec_aug = SpecAug(SpecAugConf())

    def features(sample: dict) -> tuple[torch.Tensor, list[int]]:
        samples, _ = soundfile.read(io.BytesIO(sample["wav"]), dtype="float32")
        feats = kaldi.fbank(
            torch.from_numpy(samples)[None] * 32768, num_mel_bins=BINS, sample_frequency=RATE
        )
        labels = [ord(letter) - 94 for letter in sample["txt"].decode()]
        augmented = spec_aug(
            Example("", "", None, RATE, random=hash(sample["__key__"]), feats=feats)
        ).feats
        assert augmented is not None  # spec-aug returns features for features

        return augmented, labels

    def by_length(samples: Iterable) -> Iterator:
        held = []
        for sample in samples:
            held.append(sample)
            if len(held) == SORT:
                yield from sorted(held, key=lambda pair: len(pair[0]))
                held = []

        yield from sorted(held, key=lambda pair: len(pair[0]))

    def padded(samples: Iterable) -> Iterator:
        held, longest = [], 0
        for sample in samples:
            longest = max(longest, len(sample[0]))
            if held and longest * (len(held) + 1) > MAX_FRAMES:
                yield _padded(held)
                held, longest = [], len(sample[0])
            held.append(sample)

        if held:
            yield _padded(held)

    tars = (folder / "shards.list").read_text().split()
    data = WebDataset(tars, shardshuffle=len(tars), nodesplitter=None, empty_check=False).map(
        features
    )
    data = data.shuffle(SHUFFLE).compose(by_length).compose(padded)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers)
    for feats, lengths, _, _ in loader:
        yield _counted(feats, lengths)


def _padded(samples: list[tuple[torch.Tensor, list[int]]]) -> tuple[torch.Tensor, ...]:
    pad = torch.nn.utils.rnn.pad_sequence
    feats, labels = (
        [torch.as_tensor(part) for part in column] for column in zip(*samples, strict=True)
    )
    lengths = (torch.tensor([len(part) for part in column]) for column in (feats, labels))
    return (
        pad(feats, batch_first=True),
        next(lengths),
        pad(labels, batch_first=True, padding_value=-1),
        next(lengths),
    )


def write_shar(lines: list[RawLine], folder: Path, shard_size: int) -> None:
    """Write the same audio as a Lhotse Shar; do nothing if lhotse is not installed."""
    try:
        from lhotse import MonoCut, Recording, SupervisionSegment
        from lhotse.shar import SharWriter
    except ImportError:
        return

    folder.mkdir(exist_ok=True)
    with SharWriter(str(folder), fields={"recording": "wav"}, shard_size=shard_size) as writer:
        for line in lines:
            recording = Recording.from_file(line.wav, recording_id=line.key)
            spoken = SupervisionSegment(line.key, line.key, 0.0, recording.duration, text=line.text)
            writer.write(
                MonoCut(
                    line.key, 0.0, recording.duration, 0, recording=recording, supervisions=[spoken]
                )
            )


def lhotse_batches(folder: Path, workers: int) -> Iterator[Counted]:
    """Read a Shar with Lhotse: DynamicBucketingSampler, its fbank by batch, its SpecAugment."""
    try:
        from lhotse import CutSet, Fbank, FbankConfig
        from lhotse.dataset import DynamicBucketingSampler, K2SpeechRecognitionDataset
        from lhotse.dataset.input_strategies import OnTheFlyFeatures
        from lhotse.dataset.iterable_dataset import IterableDatasetWrapper
        from lhotse.dataset.signal_transforms import SpecAugment
    except ImportError as error:
        raise ValueError(f"{error}; to compare with it: pip install lhotse") from None

    masks = SpecAugment(
        time_warp_factor=0,
        num_feature_masks=2,
        features_mask_size=10,
        num_frame_masks=2,
        frames_mask_size=50,
        p=1.0,
    )
    data = K2SpeechRecognitionDataset(
        input_strategy=OnTheFlyFeatures(Fbank(FbankConfig(num_filters=BINS, dither=0.0))),
        input_transforms=[masks],
    )
    cuts = CutSet.from_shar(
        in_dir=folder / "shar", split_for_dataloading=workers > 0, shuffle_shards=True
    )
    sampler = DynamicBucketingSampler(
        cuts,
        max_duration=MAX_FRAMES / 100,
        shuffle=True,
        num_buckets=30,
        buffer_size=SHUFFLE,
        drop_last=False,
    )
    loader = torch.utils.data.DataLoader(
        IterableDatasetWrapper(data, sampler), batch_size=None, num_workers=workers
    )
    for batch in loader:
        yield _counted(batch["inputs"], batch["supervisions"]["num_frames"])


def _counted(feats: torch.Tensor, lengths: torch.Tensor) -> Counted:
    frames = int(lengths.sum())
    return frames / 100, frames, feats.shape[0] * feats.shape[1]
