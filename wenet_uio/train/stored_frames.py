"""A frozen encoder computes the frames of an utterance once; later epochs take them from a store.

    FOLDER/rank_R.bin      frames, one utterance after another
    FOLDER/rank_R.jsonl    a line for each batch: its epoch, the place of its frames, what they are of

Frames are found by the content of the features, so that they are never those of other audio. They
have the rounding of the first batch that the utterance was in.

Each rank appends to its own files and reads those of all ranks. Within an epoch it takes from the
others only what they stored in earlier epochs. So a run that was killed finds the same frames as one
that was not.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from wenet_uio.base.files import append_line, read_lines
from wenet_uio.config import Config
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.waveform_augment import AUGMENTATION_STEPS
from wenet_uio.models.arithmetic import AUTOCAST
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.objective import rounded_frames

FIELDS = ("epoch", "offset", "digests", "frames", "checksums")
"""Fields of a line: epoch; first byte; then of each utterance the digest of its content, the number
of its frames, and the CRC-32 of their bytes."""


class _Place(NamedTuple):
    """Where the frames of an utterance are."""

    rank: int
    offset: int
    frames: int
    checksum: int


class FrameStore:
    """Frames (T', D) by the digest of what they were computed from; `begin_epoch` is the first call."""

    def __init__(self, folder: Path, rank: int, width: int, dtype: torch.dtype) -> None:
        """Open the store in a folder, which is created if it is missing.

        Args:
            rank: of this process, which adds frames to the files of this rank.
            width: D, numbers of a frame.
            dtype: type of these numbers.
        """
        self.folder = folder
        self.rank = rank
        self.width = width
        self.dtype = dtype
        self.epoch = 0
        """The epoch in which frames are added."""
        self._places: dict[str, _Place] = {}
        """{digest: place} of the frames that may be taken in this epoch."""
        folder.mkdir(parents=True, exist_ok=True)

    def begin_epoch(self, epoch: int) -> None:
        """Find what all ranks stored in epochs before `epoch`, and what this rank stored at all."""
        self.epoch = epoch
        self._places = {}
        ranks = sorted(
            int(path.stem.removeprefix("rank_")) for path in self.folder.glob("rank_*.jsonl")
        )
        for rank in ranks:
            for line in read_lines(self._index_path(rank), FIELDS):
                if rank == self.rank or line["epoch"] < epoch:
                    self._remember_places(rank, line)

    def find(self, digest: str) -> torch.Tensor | None:
        """Return frames (T', D) of the stored type; None if there are none.

        Raises:
            ValueError: the stored frames are damaged.
        """
        place = self._places.get(digest)
        if place is None:
            return None

        size = place.frames * self.width * self.dtype.itemsize
        with open(self._data_path(place.rank), "rb") as file:
            file.seek(place.offset)
            content = bytearray(file.read(size))
        if len(content) < size or zlib.crc32(content) != place.checksum:
            raise ValueError(
                f"{self._data_path(place.rank)}: damaged at byte {place.offset}; remove the folder "
                f"{self.folder}, and the frames are computed anew"
            )
        if not content:
            return torch.empty(0, self.width, dtype=self.dtype)
        return torch.frombuffer(content, dtype=self.dtype).view(-1, self.width)

    def add(self, frames: Mapping[str, torch.Tensor]) -> None:
        """Store {digest: frames (T', D)} of one batch.

        The line that names the frames is written after them and at once, so that a killed process leaves
        all of a batch or nothing.

        Raises:
            OSError: the disk is full, or the files cannot be written.
        """
        contents = [
            utterance.to(self.dtype).contiguous().view(torch.uint8).numpy().tobytes()
            for utterance in frames.values()
        ]
        path = self._data_path(self.rank)
        try:
            with open(path, "ab") as file:
                offset = file.tell()
                file.writelines(contents)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None

        line = {
            "epoch": self.epoch,
            "offset": offset,
            "digests": list(frames),
            "frames": [len(utterance) for utterance in frames.values()],
            "checksums": [zlib.crc32(content) for content in contents],
        }
        append_line(self._index_path(self.rank), line)
        self._remember_places(self.rank, line)

    def _remember_places(self, rank: int, line: Mapping[str, Any]) -> None:
        """Remember the places of a line; the first place of a digest stays."""
        offset = line["offset"]
        for digest, frames, checksum in zip(
            line["digests"], line["frames"], line["checksums"], strict=True
        ):
            self._places.setdefault(digest, _Place(rank, offset, frames, checksum))
            offset += frames * self.width * self.dtype.itemsize

    def _data_path(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.bin"

    def _index_path(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.jsonl"


log = logging.getLogger(__name__)


class StoredFrames:
    """Encodes the batches of a model as its encoder does in evaluation: without dropout.

    The model calls this in place of its encoder. Before `open`, nothing is stored.
    """

    def __init__(self, model: TrainableModel, config: Config) -> None:
        """Prepare to store the frames of the encoder of a model, in the type in which it computes.

        Args:
            model: its encoder is frozen, so that the frames of an utterance are the same in every
                epoch.
            config: of the run, which must not change the features from epoch to epoch.

        Raises:
            ValueError: the frames are not the same in every epoch; the message says what to change.
        """
        obstacles = _find_obstacles(model, config)
        if obstacles:
            raise ValueError(f"store_frames: {'; '.join(obstacles)}")

        self.encoder = model.encoder
        self.conf = config.encoder_conf
        self.dtype = AUTOCAST[config.dtype] or torch.float32
        self.num_found = self.num_computed = 0
        """Utterances since the last `begin_epoch` whose frames were stored, and were not."""
        self._store: FrameStore | None = None
        """None before `open`."""

    def open(self, folder: Path, rank: int, epoch: int) -> None:
        """Store frames in a folder of `folder` that is named after all that they depend on but the features."""
        path = folder / _encoder_digest(self.encoder, f"{self.conf!r} {self.dtype}")
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
            return _pad_to_batch(self._encode_utterances(feats, lengths, chunk_size), feats.device)

        digests = _utterance_digests(feats, lengths)
        frames: dict[str, torch.Tensor] = {}
        missing: dict[str, int] = {}  # the row of the batch that has these features, the first one
        for row, digest in enumerate(digests):
            stored = self._store.find(digest)
            if stored is not None:
                frames[digest] = stored
            else:
                missing.setdefault(digest, row)

        self.num_computed += len(missing)
        self.num_found += len(digests) - len(missing)
        if missing:
            rows = torch.tensor(list(missing.values()), device=feats.device)
            computed = self._encode_utterances(feats[rows], lengths[rows], chunk_size)
            new = dict(zip(missing, computed, strict=True))
            self._store.add(new)
            frames |= new

        return _pad_to_batch([frames[digest] for digest in digests], feats.device)

    def _encode_utterances(
        self, feats: torch.Tensor, lengths: torch.Tensor, chunk_size: int
    ) -> list[torch.Tensor]:
        """Return the frames (T', D) of each utterance, as they are stored."""
        self.encoder.eval()  # whatever the mode of the model
        with torch.no_grad():
            frames, encoded_lengths = self.encoder(feats, lengths, chunk_size)
        frames = frames.to("cpu", self.dtype)
        return [row[:length] for row, length in zip(frames, encoded_lengths.tolist(), strict=True)]


def _pad_to_batch(
    utterances: list[torch.Tensor], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad frames (T', D) of utterances to a batch (B, T', D), and return it with its lengths (B,).

    T' is that of the longest utterance, rounded up: it must not depend on whether frames were
    stored or computed in another batch.
    """
    lengths = [len(frames) for frames in utterances]
    padded = torch.zeros(len(lengths), rounded_frames(max(1, *lengths)), utterances[0].size(1))
    for row, frames in zip(padded, utterances, strict=True):
        row[: len(frames)] = frames
    return padded.to(device), torch.tensor(lengths, device=device)


def _find_obstacles(model: TrainableModel, config: Config) -> list[str]:
    """Return why the frames of an utterance are not the same in every epoch or on every rank."""
    encoder, engine = model.encoder, config.train_engine
    changing = " ".join(f"dataset_conf.{key}" for key in _random_keys(config.dataset_conf))
    obstacles: list[str] = []
    if any(weight.requires_grad for weight in encoder.parameters()):
        obstacles.append("the encoder is trained: set freeze_modules: [encoder]")
    if changing:
        obstacles.append(f"each epoch changes the features: set {changing}")
    if encoder.traits.dynamic_chunks:
        obstacles.append("each batch draws its chunks: set encoder_conf.use_dynamic_chunk=false")
    if encoder.inter_ctc is not None:
        obstacles.append(
            "frames in the middle of the encoder have a loss: set interctc_layer_idx=null"
        )
    if not encoder.masks_padding:
        obstacles.append("frames depend on the padding of their batch: set mask_padding=true")
    if engine != "torch_ddp":
        obstacles.append(f"ranks of {engine} compute together: set train_engine=torch_ddp")

    return obstacles


def _random_keys(conf: DatasetConf) -> list[str]:
    """Return the changes of `dataset_conf` that let each epoch have the same features, such as
    `speed_perturb=false`; empty if it does not change them.
    """
    off = dict.fromkeys(("speed_perturb", "spec_aug", "spec_sub", "spec_trim"), "false")
    off |= {f"{step}_conf": "null" for step in AUGMENTATION_STEPS}
    keys = [f"{name}={value}" for name, value in off.items() if getattr(conf, name)]

    section = f"{conf.feats_type}_conf"
    features_conf = getattr(conf, section)
    if getattr(features_conf, "dither", 0.0):
        keys.append(f"{section}.dither=0")

    return keys


def _utterance_digests(feats: torch.Tensor, lengths: torch.Tensor) -> list[str]:
    """Return a digest of each utterance of feats (B, T, F) of lengths (B,).

    An accelerator waits here: a digest needs the host.
    """
    rows = zip(feats.cpu(), lengths.tolist(), strict=True)
    return [_content_digest(row[:length]) for row, length in rows]


def _content_digest(content: torch.Tensor) -> str:
    """Return a digest of features (T, F) or ids (T), 128 bits."""
    hashed = hashlib.blake2b(str(tuple(content.shape)).encode(), digest_size=16)
    hashed.update(content.contiguous().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _encoder_digest(encoder: Encoder, arithmetic: str) -> str:
    """Return a digest of the weights of an encoder and of how it computes, 128 bits."""
    hashed = hashlib.blake2b(arithmetic.encode(), digest_size=16)
    for name, weight in encoder.state_dict().items():
        hashed.update(f"{name} {_content_digest(weight.cpu().flatten())} ".encode())
    return hashed.hexdigest()
