"""deepspeed: each rank holds all weights, a share of optimizer state (ZeRO 1) and gradients (2)."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from wenet_uio.config import Config
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.layers import make_contiguous
from wenet_uio.train.optimizer import collect_on_rank_0
from wenet_uio.train.update import Reading, ReadingOf

log = logging.getLogger(__name__)

OURS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
)
"""Keys of DeepSpeed's config that train.yaml sets instead, like those of optimizer, scheduler and
precision."""


class DeepspeedEngine(Engine):
    """Trains with DeepSpeed, whose json config only sets how ranks share memory.

    train.yaml sets batches, optimizer, learning rate, clipping and arithmetic.

    Weights stay fp32 and autocast chooses the arithmetic, as with the other engines. So the engines
    give the same training and differ only in memory.
    """

    in_step = True

    def __init__(
        self, model: TrainableModel, config: Config, world: World, seed: int, json_path: str | Path
    ) -> None:
        super().__init__(model, config, world, seed)
        if config.dtype == "fp16":
            raise ValueError(
                "train_engine deepspeed: dtype fp16 is for torch_ddp and torch_fsdp; use bf16 or "
                "fp32"
            )

        self.settings = read_settings(json_path, config)
        os.environ.setdefault("DS_ACCELERATOR", world.device.type)
        try:
            import deepspeed  # pyright: ignore[reportMissingImports] # optional package
        except ImportError:
            raise ValueError(
                "train_engine deepspeed: not installed; pip install -e .[deepspeed]"
            ) from None

        self.deepspeed: Any = deepspeed

    def connect(self) -> None:
        """Connect the model to the other ranks; DeepSpeed wraps it together with its optimizer."""
        if not dist.is_initialized():
            raise ValueError(
                "train_engine deepspeed: needs several processes (torchrun); use torch_ddp for one"
            )

        saved, self.saved = self.saved, None
        super().connect()
        self.deepspeed.utils.logger.setLevel(logging.WARNING)
        backend = "nccl" if self.world.device.type == "cuda" else "gloo"
        self.deepspeed.init_distributed(backend, auto_mpi_discovery=False)
        self.synced, self.zero, _, _ = self.deepspeed.initialize(
            model=self.objective,
            optimizer=self.optimizer,
            config=self.settings,
            dist_init_required=False,
        )
        if saved is not None:
            self._load_optimizer(saved["optimizer"])

    def wrap(self) -> None:
        """Lay out the weights; `connect` gives the model to DeepSpeed."""
        make_contiguous(self.model)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add to the gradients; DeepSpeed averages them over the ranks in the `last` pass."""
        self.synced.set_gradient_accumulation_boundary(last)
        self.synced.backward(loss)

    def update(self, reading_of: ReadingOf) -> Reading:
        """Let DeepSpeed clip and apply the gradient; return `reading_of` its norm."""
        self.synced.step()  # skips a gradient that is not finite
        norm = float("inf") if self.zero.overflow else float(self.synced.get_global_grad_norm())
        return reading_of(torch.tensor(norm, dtype=torch.float64, device=self.world.device))

    def disconnect(self) -> None:
        """Release the connections to the other ranks, and what DeepSpeed holds."""
        super().disconnect()
        if hasattr(self, "zero"):
            self.zero.destroy()

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimizer state, scaler and seed, complete on rank 0."""
        return {**super().state_dict(), "optimizer": self._optimizer_state()}

    def _optimizer_state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return {name of a weight: its complete state} on rank 0, empty on other ranks.

        The state is gathered weight by weight from the flat shares of the ranks.
        """
        share = next(
            (share for share in self._flat_shares() if share in self.optimizer.state), None
        )
        if share is None:
            return {}

        share_state = self.optimizer.state[share]
        # Values with the shape of the share belong to its elements; others, such as a step count,
        # are the same for every weight.
        keys = [key for key, value in share_state.items() if value.shape == share.shape]
        common = {key: value.clone() for key, value in share_state.items() if key not in keys}
        get = self.deepspeed.utils.safe_get_full_optimizer_state
        state = {}

        for name, weight in self._trained_weights().items():
            weight_state = {key: get(weight, key) for key in keys}
            state[name] = collect_on_rank_0({**common, **weight_state}, self.world.rank)

        return {} if self.world.rank else state

    def _load_optimizer(self, saved: dict[str, dict[str, torch.Tensor]]) -> None:
        """Set the flat shares of this rank from the state of each weight."""
        if not saved:
            return

        # Numbers without a dimension, such as a step count, are the same for every weight.
        example = next(iter(saved.values()))
        keys = [key for key, value in example.items() if value.dim()]
        for members, share in zip(self.zero.bit16_groups, self._flat_shares(), strict=True):
            zeros = {key: torch.zeros_like(share) for key in keys}
            numbers = {
                key: value.to(share.device) for key, value in example.items() if key not in keys
            }
            # Shares must not have one tensor in common: each counts its own steps in place.
            self.optimizer.state[share] = {
                key: value.clone() for key, value in (numbers | zeros).items()
            }
            self.deepspeed.utils.lazy_init_hp_params_optimizer_state(
                members, share, self.optimizer.state
            )

        known = {name: weight for name, weight in self._trained_weights().items() if name in saved}
        for name, weight in known.items():
            for key in keys:
                value = saved[name][key].to(self.world.device)
                self.deepspeed.utils.safe_set_full_optimizer_state(weight, value, key)

    def _trained_weights(self) -> dict[str, torch.nn.Parameter]:
        """Return the weights with a gradient, by name."""
        return {
            name: weight for name, weight in self.model.named_parameters() if weight.requires_grad
        }

    def _flat_shares(self) -> list[torch.Tensor]:
        """Return flat tensors with this rank's part of the weights, one for each group."""
        return self.zero.single_partition_of_fp32_groups


def read_settings(path: str | Path, config: Config) -> dict[str, Any]:
    """Read DeepSpeed's config; values of train.yaml replace those of the json.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not json, or it asks for another ZeRO stage than 1 or 2.
    """
    try:
        settings = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not json: {error}") from None

    zero = settings.get("zero_optimization", {}) if isinstance(settings, dict) else {}
    if zero.get("stage") not in (1, 2):
        raise ValueError(
            f"{path}: zero_optimization.stage must be 1 or 2; to share the weights as well (stage "
            "3), use torch_fsdp"
        )

    # The engine hands DeepSpeed one batch at a time, and says which is the last one of a step.
    values: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": config.grad_clip,
    }
    for key in (*OURS, "optimizer", "scheduler", "fp16", "bf16"):
        value = settings.pop(key, None)
        is_switch = isinstance(value, dict) and key in ("fp16", "bf16")
        enabled = value.get("enabled") if is_switch else value
        if enabled and enabled not in ("auto", values.get(key)):
            log.info("%s: %s %s is ignored: train.yaml sets it", path, key, value)

    return {"steps_per_print": 10**9, **settings, **values, "zero_allow_untested_optimizer": True}
