"""A frozen encoder computes the frames of an utterance once; later epochs take them from a store.

Frames are found by the content of the features, so that they are never those of other audio. They
have the rounding of the first batch that the utterance was in.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import torch

from wenet_uio.config import Config
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.waveform_augment import AUGMENTATION_STEPS
from wenet_uio.models.arithmetic import AUTOCAST
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.few_shapes import rounded_frames
from wenet_uio.train.frame_store import FrameStore

log = logging.getLogger(__name__)


class StoredFrames:
    """Encodes the batches of a model as its encoder does in evaluation: without dropout.

    The model calls this in place of its encoder. Before `open`, nothing is stored.
    """

    def __init__(self, model: TrainableModel, config: Config) -> None:
        """Check that the frames of an utterance are the same in every epoch.

        Raises:
            ValueError: they are not; the message says what to change.
        """
        obstacles = _obstacles(model, config)
        if obstacles:
            raise ValueError(f"store_frames: {'; '.join(obstacles)}")

        self.encoder = model.encoder
        self.conf = config.encoder_conf
        self.dtype = AUTOCAST[config.dtype] or torch.float32
        self.num_found = self.num_computed = 0
        self._store: FrameStore | None = None

    def open(self, folder: Path, rank: int, epoch: int) -> None:
        """Store frames in a folder of `folder` that is named after all that they depend on but the features."""
        path = folder / _digest_of_encoder(self.encoder, f"{self.conf!r} {self.dtype}")
        self._store = FrameStore(path, rank, self.encoder.traits.output_size, self.dtype)
        self._store.begin_epoch(epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Take frames that other ranks stored before `epoch`; log how many were found since the last
        call.
        """
        if self._store is None or epoch == self._store.epoch:
            return

        self._store.begin_epoch(epoch)
        total = self.num_found + self.num_computed
        if self._store.rank == 0 and total:
            log.info(
                "store_frames: frames of %d of %d utterances, with those of validation, were stored",
                self.num_found,
                total,
            )
        self.num_found = self.num_computed = 0

    def __call__(
        self, feats: torch.Tensor, lengths: torch.Tensor, chunk_size: int = -1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return encoder frames (B, T', D) in float32 and lengths (B,), as Encoder.forward.

        Raises:
            ValueError: what enters the encoder is trained, or stored frames are damaged.
        """
        if feats.requires_grad:
            raise ValueError(
                "store_frames: a module before the encoder is trained; name it in freeze_modules, too"
            )

        if self._store is None:
            return _padded(self._encode(feats, lengths, chunk_size), feats.device)

        digests = _digests(feats, lengths)
        stored = {digest: self._store.find(digest) for digest in digests}
        frames = {digest: rows for digest, rows in stored.items() if rows is not None}
        missing = {digest: digests.index(digest) for digest in stored if digest not in frames}
        self.num_computed += len(missing)
        self.num_found += len(digests) - len(missing)
        if missing:
            places = torch.tensor(list(missing.values()), device=feats.device)
            computed = self._encode(feats[places], lengths[places], chunk_size)
            new = dict(zip(missing, computed, strict=True))
            self._store.add(new)
            frames |= new

        return _padded([frames[digest] for digest in digests], feats.device)

    def _encode(
        self, feats: torch.Tensor, lengths: torch.Tensor, chunk_size: int
    ) -> list[torch.Tensor]:
        """Return the frames (T', D) of each utterance, as they are stored."""
        self.encoder.eval()  # whatever the mode of the model
        with torch.no_grad():
            frames, encoded_lengths = self.encoder(feats, lengths, chunk_size)
        frames = frames.to("cpu", self.dtype)
        return [row[:length] for row, length in zip(frames, encoded_lengths.tolist(), strict=True)]


def _padded(
    utterances: list[torch.Tensor], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad frames to a batch, and return it with its lengths.

    Its length depends on theirs alone, whether they were stored or not.
    """
    lengths = [len(frames) for frames in utterances]
    padded = torch.zeros(len(lengths), rounded_frames(max(1, *lengths)), utterances[0].size(1))
    for row, frames in zip(padded, utterances, strict=True):
        row[: len(frames)] = frames
    return padded.to(device), torch.tensor(lengths, device=device)


def _obstacles(model: TrainableModel, config: Config) -> list[str]:
    """Return why the frames of an utterance are not the same in every epoch or on every rank."""
    encoder, engine = model.encoder, config.train_engine
    changing = " ".join(f"dataset_conf.{key}" for key in _random_keys(config.dataset_conf))
    obstacles = {
        "the encoder is trained: set freeze_modules: [encoder]": any(
            weight.requires_grad for weight in encoder.parameters()
        ),
        f"each epoch changes the features: set {changing}": bool(changing),
        "each batch draws its chunks: set encoder_conf.use_dynamic_chunk=false": (
            encoder.traits.dynamic_chunks
        ),
        "frames in the middle of the encoder have a loss: set interctc_layer_idx=null": (
            encoder.inter_ctc is not None
        ),
        "frames depend on the padding of their batch: set mask_padding=true": (
            not encoder.masks_padding
        ),
        f"ranks of {engine} compute together: set train_engine=torch_ddp": engine != "torch_ddp",
    }
    return [obstacle for obstacle, stands in obstacles.items() if stands]


def _random_keys(conf: DatasetConf) -> list[str]:
    """Return the changes of `dataset_conf` that let each epoch have the same features."""
    off = dict.fromkeys(("speed_perturb", "spec_aug", "spec_sub", "spec_trim"), "false")
    off |= {f"{step}_conf": "null" for step in AUGMENTATION_STEPS}
    keys = [f"{name}={value}" for name, value in off.items() if getattr(conf, name)]
    features = f"{conf.feats_type}_conf"
    if getattr(getattr(conf, features), "dither", 0.0):
        keys.append(f"{features}.dither=0")
    return keys


def _digests(feats: torch.Tensor, lengths: torch.Tensor) -> list[str]:
    """Return a digest of each utterance. An accelerator waits here: a digest needs the host."""
    rows = zip(feats.cpu(), lengths.tolist(), strict=True)
    return [_digest(row[:length]) for row, length in rows]


def _digest(content: torch.Tensor) -> str:
    """Return a digest of features (T, F) or ids (T), 128 bits."""
    hashed = hashlib.blake2b(str(tuple(content.shape)).encode(), digest_size=16)
    hashed.update(content.contiguous().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _digest_of_encoder(encoder: Encoder, arithmetic: str) -> str:
    """Return a digest of the weights of an encoder and of how it computes, 128 bits."""
    hashed = hashlib.blake2b(arithmetic.encode(), digest_size=16)
    for name, weight in encoder.state_dict().items():
        hashed.update(f"{name} {_digest(weight.cpu().flatten())} ".encode())
    return hashed.hexdigest()
