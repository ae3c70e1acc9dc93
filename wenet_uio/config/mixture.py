"""The file that mixes sources: a list of them, or `sources` with options. NeMo's input_cfg files are read too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from wenet_uio.config.base import ConfigError, Section, parse

Weight = Annotated[float, Field(gt=0)]


class SourceConf(Section):
    """One source, or a group of them."""

    type: Literal["raw", "shard", "nemo", "group"]
    """nemo: a manifest of audio files, which is a raw list with NeMo's names."""
    data_list: str | None = None
    manifest_filepath: str | None = None
    """NeMo's name of data_list."""
    input_cfg: tuple[SourceConf, ...] | str | None = None
    """Of a group: its sources, or a file of them."""
    weight: Weight | None = None
    """Share among the sources of one level: all have one, or none; without, shares go by size."""
    repeat: Annotated[int, Field(gt=0)] = 1
    """Times that a source without a weight is read in one epoch."""
    tags: dict[str, Any] = Field(default_factory=dict)
    """Set on every sample; those of an outer group win."""

    @model_validator(mode="after")
    def _has_data(self) -> SourceConf:
        if self.type == "group":
            if not self.input_cfg or self.path:
                raise ValueError("a group needs input_cfg (a list of sources, or a file of them) and no data_list")
            if not isinstance(self.input_cfg, str):
                _check_weights(self.input_cfg)
        elif self.input_cfg or not self.path:
            raise ValueError(f"a source of type {self.type} needs data_list and no input_cfg")
        if self.weight is not None and self.repeat != 1:
            raise ValueError("weight and repeat exclude one another")
        return self

    @property
    def path(self) -> str | None:
        return self.data_list or self.manifest_filepath


class MixtureConf(Section):
    """What is mixed, and how."""

    sources: tuple[SourceConf, ...] = Field(min_length=1)
    utterances_per_epoch: Annotated[int, Field(gt=0)] | None = None
    """Default: as many as all sources hold."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Shares are raised to 1 / temperature: above 1, small sources gain."""
    per_batch: bool = False
    """Each batch holds one source only."""

    @model_validator(mode="after")
    def _weighted_alike(self) -> MixtureConf:
        _check_weights(self.sources)
        return self


def _check_weights(sources: tuple[SourceConf, ...]) -> None:
    """All sources of a level have a weight, or none.

    Raises:
        ValueError: some have.
    """
    weighted = [source for source in sources if source.weight is not None]
    if weighted and len(weighted) < len(sources):
        raise ValueError(f"{len(weighted)} of {len(sources)} sources of one level have a weight: give all one, or none")


def load_mixture(path: str | Path) -> MixtureConf:
    """Read a mixture file.

    Raises:
        ConfigError: naming every unknown key and impossible value.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if isinstance(values, list):
        values = {"sources": values}
    if isinstance(values, dict) and "input_cfg" in values:
        values["sources"] = values.pop("input_cfg")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a list of sources, found {type(values).__name__}")
    return parse(MixtureConf, values, str(path))
