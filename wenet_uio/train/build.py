"""Config -> engine."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.config import Config
from wenet_uio.models import ASRModel
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.engine_ddp import DdpEngine


def build_engine(model: ASRModel, config: Config, world: World, seed: int, deepspeed_config: str | Path = "") -> Engine:
    """The engine that `config.train_engine` names, not yet connected; `deepspeed_config` is for deepspeed alone.

    Raises:
        ValueError: it cannot be had here.
    """
    if config.train_engine == "torch_fsdp":
        from wenet_uio.train.engine_fsdp import FsdpEngine  # its imports take time

        return FsdpEngine(model, config, world, seed)
    if config.train_engine == "deepspeed":
        from wenet_uio.train.engine_deepspeed import DeepspeedEngine  # an optional dependency

        return DeepspeedEngine(model, config, world, seed, deepspeed_config)
    return DdpEngine(model, config, world, seed)
