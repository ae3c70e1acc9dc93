"""Observe one utterance for pictures: attention weights, CTC posteriors and greedy text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from wenet_uio.dataset.types import Batch
from wenet_uio.models.attention import MultiHeadedAttention
from wenet_uio.search.ctc_path import ctc_greedy_search
from wenet_uio.train.engine import Engine
from wenet_uio.train.layers import train_mode
from wenet_uio.train.micro_batches import SizedBatches
from wenet_uio.train.objective import Objective


@dataclass(frozen=True)
class Observation:
    """What the model computes for one utterance; the decoder gets the labels of the transcript."""

    key: str
    text: str
    """Transcript as stored."""
    attention: Mapping[str, np.ndarray]
    """Attention weights (heads, queries, keys) of the last layer: `encoder`, and `decoder` over the
    encoder frames."""
    posteriors: np.ndarray | None
    """CTC probabilities (frames, units); None without CTC."""
    recognised: tuple[int, ...]
    """Labels of the best CTC path; empty without CTC."""


class FirstUtterance:
    """Passes batches on unchanged, and keeps the first utterance in `batch`."""

    def __init__(self, batches: SizedBatches) -> None:
        self._batches = batches
        self.batch: Batch | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            if self.batch is None or not len(self.batch):
                self.batch = batch.rows(slice(1)) if len(batch) else batch
            yield batch


@torch.no_grad()
def observe_utterance(engine: Engine, batch: Batch) -> Observation | None:
    """Run the model on a batch of one utterance; None on ranks other than 0 and for an empty batch.

    With an engine that is `in_step` all ranks must call this together. Other engines run the model
    on rank 0 only.
    """
    if engine.world.rank and not engine.in_step:
        return None

    model = engine.model
    model.eval()
    # Compiled layers would skip the code that records.
    eager = (
        torch.compiler.set_stance("force_eager") if engine.config.torch_compile else nullcontext()
    )
    # Without further padding: the pictures show the utterance.
    objective = Objective(model, engine.world.device, engine.config.dtype)
    try:
        with eager, _record_parts(model) as recorded:
            objective(batch.to(engine.world.device))
    finally:
        train_mode(model)

    if engine.world.rank or not len(batch):
        return None

    logits = recorded.pop("ctc", None)
    posteriors, recognised = None, ()
    if logits is not None:
        posteriors = logits.softmax(-1).cpu().numpy()
        lengths = torch.tensor([logits.size(0)], device=logits.device)
        paths = ctc_greedy_search(logits.log_softmax(-1)[None], lengths, model.blank)
        recognised = paths[0][0].tokens

    attention = {part: weights.float().cpu().numpy() for part, weights in recorded.items()}
    return Observation(batch.keys[0], "".join(batch.texts[:1]), attention, posteriors, recognised)


@contextmanager
def _record_parts(model: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Record attention weights and CTC logits of the first utterance of a batch in the block.

    The dictionary has the weights by part of the model, and the logits as `ctc`.
    """
    recorded: dict[str, torch.Tensor] = {}
    parts = _last_attentions(model)
    for name, attention in parts.items():
        attention.attend = _recording_attend(attention, name, recorded)

    def record_logits(_module: nn.Module, _inputs: object, logits: torch.Tensor) -> None:
        recorded["ctc"] = logits[0].float()

    ctc = getattr(model, "ctc", None)
    handle = ctc and ctc.ctc_lo.register_forward_hook(record_logits)
    try:
        yield recorded
    finally:
        for attention in parts.values():
            del attention.attend  # the method of the class is back
        if handle:
            handle.remove()


def _last_attentions(model: nn.Module) -> dict[str, MultiHeadedAttention]:
    """Return the last self-attention of the encoder and the last cross-attention of the decoder.

    The decoder is the left-to-right one.
    """
    last: dict[str, MultiHeadedAttention] = {}
    for name, module in model.named_modules():
        if not isinstance(module, MultiHeadedAttention):
            continue
        if name.startswith("encoder."):
            last["encoder"] = module
        elif name.endswith("src_attn") and "right_decoder" not in name:
            last["decoder"] = module

    return last


def _recording_attend(
    attention: MultiHeadedAttention, name: str, recorded: dict[str, torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """Wrap `attention.attend` to also record the weights of the first utterance as `name`."""
    attend = attention.attend

    def record(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        # attend() may use a fused kernel, which does not return its weights.
        scores = query[:1].float() @ key[:1].float().transpose(2, 3) * query.size(3) ** -0.5
        recorded[name] = (scores if bias is None else scores + bias[:1]).softmax(-1)[0]
        return attend(query, key, value, bias)

    return record
