"""deepspeed: every rank holds the weights, and a share of optimizer state (ZeRO 1) and gradients (ZeRO 2)."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from wenet_uio.config import Config
from wenet_uio.models import ASRModel
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine, contiguous

log = logging.getLogger(__name__)

OURS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
"""Keys of deepspeed's config whose place is train.yaml, as are those of optimizer, scheduler and precision."""


class DeepspeedEngine(Engine):
    """Batches, optimizer, learning rate, clipping and arithmetic are train.yaml's; the json says how to share.

    Weights stay fp32 and the arithmetic is autocast's, as with the other engines, so that they differ in memory alone.
    """

    in_step = True

    def __init__(self, model: ASRModel, config: Config, world: World, seed: int, json_path: str | Path) -> None:
        super().__init__(model, config, world, seed)
        if config.dtype == "fp16":
            raise ValueError("train_engine deepspeed: dtype fp16 is for torch_ddp and torch_fsdp; use bf16 or fp32")
        self.settings = read_settings(json_path, config)
        os.environ.setdefault("DS_ACCELERATOR", world.device.type)
        try:
            import deepspeed
        except ImportError:
            raise ValueError("train_engine deepspeed: not installed; pip install -e .[deepspeed]") from None
        self.deepspeed = deepspeed

    def connect(self) -> None:
        if not dist.is_initialized():
            raise ValueError("train_engine deepspeed: a single process has nothing to share; use torch_ddp")
        saved, self.saved = self.saved, None
        super().connect()
        self.deepspeed.utils.logger.setLevel(logging.WARNING)
        self.deepspeed.init_distributed(dist.get_backend(), auto_mpi_discovery=False)
        self.synced, self.zero, _, _ = self.deepspeed.initialize(
            model=self.objective, optimizer=self.optimizer, config=self.settings, dist_init_required=False
        )
        if saved is not None:
            self._load_optimizer(saved["optimizer"])

    def wrap(self) -> None:
        """Deepspeed takes the model with its optimizer: see `connect`."""
        contiguous(self.model)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        self.synced.set_gradient_accumulation_boundary(last)
        self.synced.backward(loss)

    def update(self) -> torch.Tensor:
        self.synced.step()  # skips what is not finite
        norm = float("inf") if self.zero.overflow else float(self.synced.get_global_grad_norm())
        return torch.tensor(norm, dtype=torch.float64, device=self.world.device)

    def disconnect(self) -> None:
        super().disconnect()
        if hasattr(self, "zero"):
            self.zero.destroy()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "optimizer": self._optimizer_state()}

    def _optimizer_state(self) -> dict[str, dict[str, torch.Tensor]]:
        """As optimizer.optimizer_state: each weight's own part, gathered from the flat shares of the ranks."""
        shares = [(share, self.optimizer.state[share]) for share in self._shares() if share in self.optimizer.state]
        if not shares:
            return {}
        share, memory = shares[0]
        whole_keys = [key for key, value in memory.items() if value.shape == share.shape]
        others = {key: value.clone() for key, value in memory.items() if key not in whole_keys}
        get = self.deepspeed.utils.safe_get_full_optimizer_state
        return {
            name: {**others, **{key: get(weight, key) for key in whole_keys}}
            for name, weight in self.model.named_parameters()
            if weight.requires_grad
        }

    def _load_optimizer(self, saved: dict[str, dict[str, torch.Tensor]]) -> None:
        if not saved:
            return
        example = next(iter(saved.values()))
        keys = [key for key, value in example.items() if value.dim()]
        for members, share in zip(self.zero.bit16_groups, self._shares(), strict=True):
            zeros = {key: torch.zeros_like(share) for key in keys}
            numbers = {key: value.to(share.device) for key, value in example.items() if key not in keys}
            self.optimizer.state[share] = {key: value.clone() for key, value in (numbers | zeros).items()}
            self.deepspeed.utils.lazy_init_hp_params_optimizer_state(members, share, self.optimizer.state)
        for name, weight in self.model.named_parameters():
            if weight.requires_grad and name in saved:
                for key in keys:
                    value = saved[name][key].to(self.world.device)
                    self.deepspeed.utils.safe_set_full_optimizer_state(weight, value, key)

    def _shares(self) -> list[torch.Tensor]:
        """This rank's part of the weights of each group, flat."""
        return self.zero.single_partition_of_fp32_groups


def read_settings(path: str | Path, config: Config) -> dict[str, Any]:
    """Deepspeed's config from its json, with what train.yaml says in the place of what it says of the same.

    Raises:
        OSError: it cannot be read. ValueError: it is not json, or asks for what is not built.
    """
    try:
        settings = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not json: {error}") from None
    if not isinstance(settings, dict) or settings.get("zero_optimization", {}).get("stage") not in (1, 2):
        raise ValueError(f"{path}: zero_optimization.stage must be 1 or 2; torch_fsdp shares the weights too")
    values = dict(zip(OURS[1:], (1, 1, config.grad_clip), strict=True))
    for key in (*OURS, "optimizer", "scheduler", "fp16", "bf16"):
        found = settings.pop(key, None)
        enabled = found.get("enabled") if isinstance(found, dict) and key in ("fp16", "bf16") else found
        if enabled and enabled not in ("auto", values.get(key)):
            log.info("%s: %s %s is not used: train.yaml says so", path, key, found)
    return {"steps_per_print": 10**9, **settings, **values, "zero_allow_untested_optimizer": True}
