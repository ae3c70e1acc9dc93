"""Build the engine that the config names."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.config import Config
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.engine_ddp import DdpEngine

DEEPSPEED_CONFIG = Path(__file__).with_name("ds_stage2.json")
"""DeepSpeed's config with ZeRO stage 2."""


def build_engine(
    model: TrainableModel,
    config: Config,
    world: World,
    seed: int,
    deepspeed_config: str | Path = DEEPSPEED_CONFIG,
) -> Engine:
    """Build the engine that `config.train_engine` names; `Engine.connect` is the next call.

    Args:
        deepspeed_config: json file; used by the engine deepspeed only.

    Raises:
        ValueError: the engine does not support this config, or deepspeed is not installed.
        OSError: the json file cannot be read.
    """
    if config.train_engine == "torch_fsdp":
        from wenet_uio.train.engine_fsdp import FsdpEngine  # slow to import

        return FsdpEngine(model, config, world, seed)

    if config.train_engine == "deepspeed":
        from wenet_uio.train.engine_deepspeed import DeepspeedEngine

        return DeepspeedEngine(model, config, world, seed, deepspeed_config)

    return DdpEngine(model, config, world, seed)
