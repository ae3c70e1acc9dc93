"""Operators that a user names in yaml: `dataset_conf.operators`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from wenet_uio.config.base import ConfigError
from wenet_uio.config.dataset import OperatorConf
from wenet_uio.dataset.types import Example, SkipSample


class OperatorError(RuntimeError):
    """A fault in a user's operator: it stops the run, and is never taken for bad data."""


@dataclass(frozen=True)
class UserOperator:
    """Calls a user's operator, and says which sample it failed on."""

    use: str
    operator: Callable[[Example], Example]

    def __call__(self, example: Example) -> Example:
        try:
            changed = self.operator(example)
        except SkipSample:
            raise
        except Exception as error:
            raise OperatorError(f"{self.use} failed on {example.key}: {type(error).__name__}: {error}") from error
        if not isinstance(changed, Example):
            found = type(changed).__name__
            raise OperatorError(f"{self.use} gave {found} for {example.key}; it must return an Example")
        return changed


def user_operator(conf: OperatorConf) -> UserOperator:
    """Import and make the operator that `conf` names.

    Raises:
        ConfigError: no such module or name, or it does not take `conf.conf`.
    """
    where = f"dataset_conf.operators: {conf.use}"
    module_name, _, name = conf.use.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{where}: {error}; is its folder on PYTHONPATH?") from None
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ConfigError(f"{where}: {module.__file__} has no {name} that can be called")
    try:
        inspect.signature(factory).bind(**conf.conf)
    except TypeError as error:
        raise ConfigError(f"{where}: conf does not fit {name}{inspect.signature(factory)}: {error}") from None
    operator = factory(**conf.conf)
    if not callable(operator):
        raise ConfigError(f"{where}: gave {type(operator).__name__}, which cannot be called with an Example")
    return UserOperator(conf.use, operator)
