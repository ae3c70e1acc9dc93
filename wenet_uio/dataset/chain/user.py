"""Operators of the user, which `dataset_conf.operators` names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from wenet_uio.config.base import ConfigError
from wenet_uio.config.dataset import OperatorConf
from wenet_uio.config.named_code import named_object
from wenet_uio.dataset.types import Example, SkipSample


class OperatorError(RuntimeError):
    """An operator of the user failed. This stops the run; the sample does not count as bad data."""


@dataclass(frozen=True)
class UserOperator:
    """Calls an operator of the user; its errors name the sample."""

    use: str
    operator: Callable[[Example], object]

    def __call__(self, example: Example) -> Example:
        """Return the changed example.

        Raises:
            SkipSample: the operator leaves the sample out.
            OperatorError: the operator raised another exception, or did not return an Example.
        """
        try:
            changed = self.operator(example)
        except SkipSample:
            raise
        except Exception as error:
            raise OperatorError(
                f"{self.use} failed on {example.key}: {type(error).__name__}: {error}"
            ) from error

        if not isinstance(changed, Example):
            returned = type(changed).__name__
            raise OperatorError(
                f"{self.use} returned {returned} for {example.key}; it must return an Example"
            )

        self._check_shapes(example, changed)
        return changed

    def _check_shapes(self, before: Example, after: Example) -> None:
        """Check what later operators and padding rely on.

        Raises:
            OperatorError: a waveform is not (samples,), or features are not (frames, bins) with the
                bins that they had.
        """
        waveform, feats = after.waveform, after.feats
        if waveform is not None and waveform.ndim != 1:
            raise OperatorError(
                f"{self.use} returned a waveform of shape {tuple(waveform.shape)} for "
                f"{before.key}; expected (samples,)"
            )

        bins = None if before.feats is None else before.feats.size(-1)
        if feats is not None and (feats.ndim != 2 or bins not in (None, feats.size(1))):
            expected = "(frames, bins)" if bins is None else f"(frames, {bins})"
            raise OperatorError(
                f"{self.use} returned features of shape {tuple(feats.shape)} for {before.key}; "
                f"expected {expected}"
            )


def user_operator(conf: OperatorConf) -> UserOperator:
    """Import and create the operator that `conf` names.

    Raises:
        ConfigError: there is no such module or name, or it does not accept the keys of `conf.conf`.
    """
    where = f"dataset_conf.operators: {conf.use}"
    name = conf.use.partition(":")[2]
    factory = named_object(conf.use, where, missing=" that can be called")
    if not callable(factory):
        raise ConfigError(f"{where}: {name} cannot be called")

    try:
        inspect.signature(factory).bind(**conf.conf)
    except TypeError as error:
        raise ConfigError(
            f"{where}: conf does not fit {name}{inspect.signature(factory)}: {error}"
        ) from None

    operator = factory(**conf.conf)
    if not callable(operator):
        raise ConfigError(
            f"{where}: returned {type(operator).__name__}, which cannot be called with an Example"
        )

    return UserOperator(conf.use, operator)
