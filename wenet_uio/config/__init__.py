"""Typed configuration: read a train.yaml, check every key and value, write the complete config of a run.

The yaml has the shape of WeNet's train.yaml, and WeNet's own files load unchanged.
"""

from wenet_uio.config.base import ConfigError, Section
from wenet_uio.config.config import Config, load_config, parse_config, save_config
from wenet_uio.config.dataset import DatasetConf

__all__ = ["Config", "ConfigError", "DatasetConf", "Section", "load_config", "parse_config", "save_config"]
