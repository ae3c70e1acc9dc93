"""A model, batches and a loader just large enough to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from wenet_uio.config import Config, parse_config
from wenet_uio.dataset.types import Batch
from wenet_uio.models.losses import LossWeights
from wenet_uio.train.distributed import World

FEATURES, UNITS = 8, 5
CPU = World(torch.device("cpu"))
SMALL = {"attention_heads": 2, "linear_units": 16, "num_blocks": 1}


class TinyModel(nn.Module):
    """Mean of the frames -> hidden layer -> one unit for each utterance."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.ctc_weight, self.attention_weight, self.reverse_weight = 0.3, 0.7, 0.0
        self.idle_modules: list[nn.Module] = []
        self.loss_names = ("loss", "loss_att", "loss_ctc", "th_accuracy")
        self.weights = LossWeights()
        self.encoder = SimpleNamespace(trains_on_padding=False)
        self.decoder = nn.Identity()
        self.ignore_id = -1
        self.hidden = nn.Linear(FEATURES, 8)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(8, UNITS)

    def loss_weights(self, cr_weight: float | None = None) -> dict[str, float]:
        """As ASRModel.loss_weights."""
        return {"loss_att": 0.7, "loss_ctc": 0.3}

    def prompts(
        self, texts: Sequence[str], fields: Sequence[Any], keys: Sequence[str] = ()
    ) -> None:
        """As ASRModel.prompts."""

    def forward(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        valid = torch.arange(feats.size(1)) < feats_lengths[:, None]
        mean = (feats * valid[..., None]).sum(1) / feats_lengths[:, None]
        logits = self.output(self.dropout(torch.tanh(self.hidden(mean))))
        loss_att = nn.functional.cross_entropy(logits, target[:, 0])
        loss_ctc = logits.square().sum(1).mean()
        accuracy = (logits.argmax(1) == target[:, 0]).float().mean()
        loss = 0.7 * loss_att + 0.3 * loss_ctc
        return {"loss": loss, "loss_att": loss_att, "loss_ctc": loss_ctc, "th_accuracy": accuracy}


def tiny_config(**keys: Any) -> Config:
    keys = {
        "optim_conf": {"lr": 0.01},
        "scheduler_conf": {"warmup_steps": 4},
        "log_interval": 2,
        "max_epoch": 3,
        "output_dim": UNITS + 1,
        "encoder_conf": SMALL,  # the card of a run builds this model
        "decoder_conf": SMALL,
        **keys,
    }
    return parse_config(keys, "test")


def small_config(**keys: Any) -> Config:
    """A conformer without dropout; its results do not depend on padding or other utterances (layer
    norm, causal).
    """
    small = {
        "attention_heads": 2,
        "linear_units": 16,
        "num_blocks": 2,
        "dropout_rate": 0,
        "positional_dropout_rate": 0,
    }
    encoder = {
        "output_size": 16,
        "cnn_module_kernel": 3,
        "cnn_module_norm": "layer_norm",
        "causal": True,
    }
    model = {
        "encoder": "conformer",
        "encoder_conf": {**small, **encoder},
        "decoder": "transformer",
        "decoder_conf": small,
        "tokenizer_conf": {"special_tokens": {"<sos>": UNITS, "<eos>": UNITS}},
        "input_dim": FEATURES,
        "output_dim": UNITS + 1,
    }
    return tiny_config(**{**model, **keys})


def tiny_batch(lengths: Sequence[int], seed: int, tokens: int = 1) -> Batch:
    """Random utterances of `lengths` frames and 1 to `tokens` tokens; utterance n depends only on
    the seed and n.
    """
    feats = torch.zeros(len(lengths), max(lengths, default=0), FEATURES)
    target = torch.full((len(lengths), tokens), -1)
    target_lengths = torch.tensor(
        [1 + number % tokens for number in range(len(lengths))], dtype=torch.int64
    )
    for number, length in enumerate(lengths):
        generator = torch.Generator().manual_seed(seed * 1000 + number)
        feats[number, :length] = torch.randn(length, FEATURES, generator=generator)
        size = int(target_lengths[number])
        target[number, :size] = torch.randint(1, UNITS, (size,), generator=generator)
    keys = tuple(f"{seed}-{number}" for number in range(len(lengths)))
    size = len(lengths)
    return Batch(
        keys, feats, torch.tensor(lengths), target, target_lengths, sum(lengths) / 100, planned=size
    )


def two_views(batch: Batch) -> Batch:
    """The batch with a second view of each utterance: some of its features are zeros."""
    return replace(batch, other_feats=batch.feats * (torch.arange(FEATURES) > 2))


def part(batch: Batch, rows: Sequence[int]) -> Batch:
    """The utterances `rows` of a batch, padded to the longest of them."""
    longest = int(batch.feats_lengths[list(rows)].max()) if rows else 0
    most_tokens = int(batch.target_lengths[list(rows)].max()) if rows else 0
    tensors = {
        name: getattr(batch, name)[list(rows)]
        for name in ("feats_lengths", "target", "target_lengths")
    }
    seconds = int(tensors["feats_lengths"].sum()) / 100
    feats = batch.feats[list(rows), :longest]
    tensors["target"] = tensors["target"][:, :most_tokens]
    keys = tuple(batch.keys[row] for row in rows)
    if batch.other_feats is not None:
        tensors["other_feats"] = batch.other_feats[list(rows), :longest]
    return replace(batch, keys=keys, feats=feats, seconds=seconds, planned=len(rows), **tensors)


class ListLoader:
    """A loader over given batches."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = list(batches)
        self.epoch = self.position = 0

    def __len__(self) -> int:
        return sum(batch.closes_step for batch in self.batches[self.position :])

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches[self.position :]:
            self.position += 1
            if self.position == len(self.batches):
                self.epoch, self.position = self.epoch + 1, 0
            yield batch

    def left_out(self, epoch: int) -> Counter[str]:
        return Counter()

    def left_out_of_pass(self) -> Counter[str]:
        return Counter()

    def data_record(self) -> dict[str, Any]:
        return {
            "list": "tiny.list",
            "utterances": sum(map(len, self.batches)),
            "hours": 0.01,
            "digest": "0",
            "contents": "0",
        }

    def audio_of(self, key: str) -> None:
        return None

    def utterance_seconds(self) -> dict[str, float]:
        return {"median": 1.0, "most": 2.0, "longest": 3.0}

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any], *, allow_changes: bool = False) -> None:
        self.epoch, self.position = state["epoch"], state["position"]
