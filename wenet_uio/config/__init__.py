"""Typed configuration: read a train.yaml, check every key and value, write the complete config of a
run.

The yaml has the shape of WeNet's train.yaml, and WeNet's own files load unchanged. The names below
are loaded when they are used: the data layer does not load the sections of models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wenet_uio.base.imports import loads_when_used

if TYPE_CHECKING:
    from wenet_uio.config.base import ConfigError, Section
    from wenet_uio.config.config import Config
    from wenet_uio.config.dataset import DatasetConf
    from wenet_uio.config.load import load_config, parse_config, save_config

__all__ = [
    "Config",
    "ConfigError",
    "DatasetConf",
    "Section",
    "load_config",
    "parse_config",
    "save_config",
]

__getattr__ = loads_when_used(
    __name__,
    {
        **dict.fromkeys(("ConfigError", "Section"), "base"),
        "Config": "config",
        **dict.fromkeys(("load_config", "parse_config", "save_config"), "load"),
        "DatasetConf": "dataset",
    },
)


def __dir__() -> list[str]:
    return __all__
