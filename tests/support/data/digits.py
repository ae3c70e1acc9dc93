"""Spoken digits of the corpus FSDD, and a model that trains on them in this process."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from wenet_uio.config import Config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.models import ASRModel
from wenet_uio.models.masks import length_mask
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.text.symbols import write_symbols
from wenet_uio.text.tokenizer import build_tokenizer

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FEATURES = {
    "feats_type": "fbank",
    "resample_conf": {"resample_rate": 8000},
    "fbank_conf": {"num_mel_bins": 40},
    "batch_conf": {"batch_type": "static", "batch_size": 32},
}
"""dataset_conf of features at the rate of the corpus."""

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Features (B, T, F), lengths (B,), labels (B, U) padded with -1, lengths (B,)."""


def write_digits(corpora: Path, folder: Path, every: int, first: int = 0) -> tuple[Path, Path]:
    """Write a data list of each `every`-th recording from `first`, and a units file of words; their
    paths.
    """
    recordings = sorted((corpora / "fsdd/recordings").rglob("*.wav"))[first::every]
    lines = [RawLine(path.stem, str(path), WORDS[int(path.stem[0])]) for path in recordings]
    assert make_raw_list(lines, folder / "data.list") == []
    write_symbols(folder / "units.txt", WORDS)
    return folder / "data.list", folder / "units.txt"


def batches_of(config: Config, data_list: Path) -> list[Tensors]:
    """All batches of a data list, without shuffling and augmentation."""
    loader = build_loader(str(data_list), "raw", config, build_tokenizer(config), training=False)
    return [
        (batch.feats, batch.feats_lengths, batch.target, batch.target_lengths) for batch in loader
    ]


def write_cmvn(batches: list[Tensors], path: Path) -> None:
    """Write mean and variance statistics of the features."""
    frames = torch.cat(
        [feats[length_mask(lengths, feats.size(1))] for feats, lengths, _, _ in batches]
    ).double()
    stats = {
        "mean_stat": frames.sum(0).tolist(),
        "var_stat": frames.pow(2).sum(0).tolist(),
        "frame_num": len(frames),
    }
    path.write_text(json.dumps(stats), encoding="utf-8")


def train_steps(model: ASRModel, batches: list[Tensors], steps: int, lr: float) -> list[float]:
    """Train for `steps` batches with Adam, in turns; the losses."""
    optimizer = torch.optim.Adam(
        [weight for weight in model.parameters() if weight.requires_grad], lr
    )
    model.train()
    losses = []
    for step in range(steps):
        loss = model(*batches[step % len(batches)])["loss"]
        assert loss is not None
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses
