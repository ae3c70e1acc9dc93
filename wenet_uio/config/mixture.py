"""The mixture of sources: a list of them, or `sources` with options. NeMo's input_cfg files are read too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from wenet_uio.config.base import ConfigError, Section, parse

Weight = Annotated[float, Field(gt=0)]
Paths = str | tuple[str, ...]
"""One pattern or several, with ranges and globs."""

KEYS = {
    "raw": ("data_list",),
    "shard": ("data_list",),
    "nemo": ("manifest_filepath",),
    "txt": ("paths",),
    "txt_pair": ("source_paths", "target_paths"),
    "group": ("input_cfg",),
}
"""What each type of source needs; `data_list` is another name of manifest_filepath."""


class SourceConf(Section):
    """One source, or a group of them."""

    type: Literal["raw", "shard", "nemo", "txt", "txt_pair", "group"]
    """nemo: a manifest of audio files, which is a raw list with NeMo's names; txt: text without audio, a text a line;
    txt_pair: two such files, line by line."""
    data_list: str | None = None
    manifest_filepath: str | None = None
    paths: Paths | None = None
    source_paths: Paths | None = None
    target_paths: Paths | None = None
    language: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    """Languages are set on the samples, as tags are."""
    input_cfg: tuple[SourceConf, ...] | str | None = None
    """Of a group: its sources, or a file of them."""
    weight: Weight | None = None
    """Share among the sources of one level: all have one, or none; without, shares go by size."""
    repeat: Annotated[int, Field(gt=0)] = 1
    """Times that a source without a weight is read in one epoch."""
    tags: dict[str, Any] = Field(default_factory=dict)
    """Set on every sample; those of an outer group win."""

    @model_validator(mode="before")
    @classmethod
    def _nemo_list(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("type") == "nemo" and "data_list" in values:
            values = {**values, "manifest_filepath": values["data_list"]}
            del values["data_list"]
        return values

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> SourceConf:
        needed = KEYS[self.type]
        if missing := [name for name in needed if not getattr(self, name)]:
            raise ValueError(f"a source of type {self.type} needs {' and '.join(missing)}")
        others = {name for names in KEYS.values() for name in names} - set(needed)
        if strange := sorted(name for name in others if getattr(self, name)):
            raise ValueError(f"a source of type {self.type} has no {' and '.join(strange)}")
        if isinstance(self.input_cfg, tuple):
            _check_weights(self.input_cfg)
        if self.weight is not None and self.repeat != 1:
            raise ValueError("weight and repeat exclude one another")
        return self

    @property
    def own_tags(self) -> dict[str, Any]:
        """`tags`, and the languages as tags."""
        names = ("language", "source_language", "target_language")
        return {**{name: getattr(self, name) for name in names if getattr(self, name) is not None}, **self.tags}


class MixtureConf(Section):
    """What is mixed, and how."""

    sources: tuple[SourceConf, ...] = Field(min_length=1)
    utterances_per_epoch: Annotated[int, Field(gt=0)] | None = None
    """Default: as many as all sources hold."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Shares are raised to 1 / temperature: above 1, small sources gain."""
    per_batch: bool | Literal["weighted", "round_robin"] = False
    """Each batch holds one source only. True: weights are shares of utterances, as ever. weighted: they are shares of
    batches. round_robin: every source has as many batches as any other, and they take turns."""

    @model_validator(mode="before")
    @classmethod
    def _names(cls, values: Any) -> Any:
        if isinstance(values, (list, tuple)):
            return {"sources": values}
        if isinstance(values, dict) and "input_cfg" in values:
            return {"sources": values["input_cfg"], **{k: v for k, v in values.items() if k != "input_cfg"}}
        if not isinstance(values, (dict, MixtureConf)):
            raise ValueError(f"expected a list of sources, found {type(values).__name__}")
        return values

    @model_validator(mode="after")
    def _weighted_alike(self) -> MixtureConf:
        _check_weights(self.sources)
        if self.per_batch == "round_robin" and any(source.weight is not None for source in self.sources):
            raise ValueError("per_batch round_robin gives every source as many batches: leave the weights out")
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
    return parse(MixtureConf, values, str(path))
