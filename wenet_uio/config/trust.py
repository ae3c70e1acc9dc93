"""Which code of other packages, named by a train.yaml as `module:name`, may run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from wenet_uio.config.base import ConfigError
from wenet_uio.config.named_code import is_third_party
from wenet_uio.config.yaml_file import read_yaml


@dataclass(frozen=True)
class RecipeCode:
    """The code that a recipe brings: modules of its `local/`, and what its `conf/*.yaml` name."""

    folder: Path

    def holds(self, name: str) -> bool:
        """Tell whether `module:name` is code of this recipe."""
        module = name.partition(":")[0]
        if module.startswith("local."):
            path = self.folder.joinpath(*module.split("."))
            return path.with_suffix(".py").is_file() or path.is_dir()
        return name in self._named_in_configs

    @cached_property
    def _named_in_configs(self) -> set[str]:
        """Encoders, models and operators of other packages in `conf/*.yaml`."""
        names: set[str] = set()
        for path in sorted(self.folder.glob("conf/*.yaml")):
            values = read_yaml(path)
            if isinstance(values, dict):
                names.update(model_code(values))
                names.update(_operator_code(values))

        return names


Trust: TypeAlias = bool | RecipeCode
"""True: any code may run; False: none; RecipeCode: that of a recipe."""


def refuse_code(names: Iterable[str], trust_code: Trust, where: str) -> None:
    """Raise a ConfigError if `names` has code that is not trusted.

    Args:
        names: `module:name` of each piece of code.
        where: begin of the message, such as `exp/train.yaml: dataset_conf.operators`.
    """
    if trust_code is True:
        return

    strange = [name for name in names if not (trust_code and trust_code.holds(name))]
    if strange:
        raise ConfigError(
            f"{where} names code that would run: {', '.join(strange)}; if you trust the author of "
            "the model, add --trust_code"
        )


def model_code(values: Mapping[str, Any]) -> list[str]:
    """Return `module:name` of encoder and model of other packages in the content of a yaml."""
    parts: list[object] = [values.get("encoder"), values.get("model")]
    return [part for part in parts if is_third_party(part)]


def _operator_code(values: Mapping[str, Any]) -> list[str]:
    """Return `module:name` of the operators in the content of a yaml."""
    dataset_conf = values.get("dataset_conf")
    operators = dataset_conf.get("operators") if isinstance(dataset_conf, dict) else None
    uses: list[object] = []
    for operator in operators or ():
        if isinstance(operator, dict):
            uses.append(operator.get("use"))

    return [use for use in uses if is_third_party(use)]
