"""Config of a mixture of sources: a list of sources, or `sources` with options. NeMo's input_cfg
files are read too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, WrapValidator, model_validator

from wenet_uio.config.base import AboveZero, ConfigError, Positive, Section, parse
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.config.source import AnySource, SourceConf, SourceType

PerBatch = bool | Literal["weighted", "round_robin", "zip"]
DATA_OF_CONFIG = "data of the config"
"""Stands for the path of a list where `data` or `cv_data` of train.yaml names the sources."""


class GroupConf(SourceConf):
    """Sources with a common weight and tags. They get the keys INHERITED of `source.py`, too, unless
    they state them.
    """

    input_cfg: Annotated[
        tuple[AnySource, ...] | str,
        # pydantic would report a bad source a second time, as no path.
        WrapValidator(lambda value, _: value if isinstance(value, str) else _parse_members(value)),
    ]
    """The sources, or the path of a file of sources."""
    text_field: str | None = None
    audio_field: str | None = None
    key_ends: Literal["auto", "first", "last", "audio"] | None = None
    token_equivalent_duration: AboveZero | None = None

    @model_validator(mode="after")
    def _has_members_that_fit(self) -> GroupConf:
        if isinstance(self.input_cfg, tuple):
            _check_weights(self.input_cfg)
            if any(source.batch_conf for source in self.input_cfg):
                raise ValueError("batch_conf belongs to the group, not to the sources in it")
            if any(source.filter_conf for source in self.input_cfg):
                raise ValueError("filter_conf belongs to the group, not to the sources in it")
        return self

    def members(self, included_by: str = DATA_OF_CONFIG) -> list[SourceConf]:
        """Return the sources with the keys that they inherit. Reads the file if `input_cfg` is a
        path.

        Args:
            included_by: for messages, where the group stands if no other group includes it.

        Raises:
            ConfigError: the file is missing, holds unknown keys or impossible values, or includes
                itself.
        """
        if not isinstance(self.input_cfg, str):
            return [conf.inheriting(self, self._files) for conf in self.input_cfg]

        path = os.path.realpath(self.input_cfg)
        files = (*self._files, path)
        if path in self._files:
            raise ConfigError(
                f"{self.input_cfg}: this file of sources includes itself: {' > '.join(files)}"
            )

        if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises if a folder may not be entered
            includer = self._files[-1] if self._files else included_by
            raise ConfigError(f"{includer}: input_cfg: {self.input_cfg}: no such file of sources")

        return [conf.inheriting(self, files) for conf in load_mixture(self.input_cfg).sources]


_parse_members = TypeAdapter(tuple[AnySource, ...]).validate_python


GROUP = SourceType(GroupConf)


class MixtureConf(Section):
    """Sources, and how they are mixed."""

    sources: tuple[AnySource, ...] = Field(min_length=1)
    utterances_per_epoch: Positive | None = None
    """Default: the number of utterances of all sources."""
    temperature: AboveZero = 1.0
    """Shares are raised to 1 / temperature: above 1, small sources gain."""
    per_batch: PerBatch = False
    """False: a batch may mix sources. With any other value a batch holds samples of one source
    only. True: weights are shares of utterances. weighted: weights are shares of batches.
    round_robin: all sources have equally many batches, and take turns. zip: every step has one
    batch of every entry of `sources` on every rank; its batches run one after the other, as the
    pieces of one step."""

    @model_validator(mode="before")
    @classmethod
    def _names(cls, values: Any) -> Any:
        """Accept a list of sources alone, and NeMo's name `input_cfg` for `sources`."""
        if isinstance(values, (list, tuple)):
            return {"sources": values}

        if isinstance(values, dict) and "input_cfg" in values:
            options = dict(values)
            sources = options.pop("input_cfg")
            return {"sources": sources, **options}

        if not isinstance(values, (dict, MixtureConf)):
            raise ValueError(f"expected a list of sources, found {type(values).__name__}")

        return values

    @model_validator(mode="after")
    def _weighted_alike(self) -> MixtureConf:
        """Raise ValueError if weights or batches of sources do not fit the way of mixing."""
        _check_weights(self.sources)
        has_weights = any(source.weight is not None for source in self.sources)
        if has_weights and self.per_batch in ("round_robin", "zip"):
            raise ValueError(
                f"per_batch {self.per_batch} gives every source as many batches: leave the weights "
                "out"
            )

        for key in ("batch_conf", "filter_conf"):
            if not self.per_batch and any(getattr(source, key) for source in self.sources):
                raise ValueError(
                    f"{key} of a source needs per_batch: true, weighted, round_robin or zip"
                )

        return self

    @property
    def has_entries(self) -> bool:
        """Whether the sources of one group share batches: in `zip`, and if an entry has a
        `batch_conf` or a `filter_conf`.
        """
        return self.per_batch == "zip" or any(
            source.batch_conf or source.filter_conf for source in self.sources
        )

    def batch_confs(self, default: BatchConf) -> tuple[BatchConf, ...]:
        """Return `batch_conf` of each entry; empty if all have the default."""
        if not any(source.batch_conf for source in self.sources):
            return ()
        return tuple(source.batch_conf or default for source in self.sources)

    def filter_confs(self, default: FilterConf) -> tuple[FilterConf, ...]:
        """Return `filter_conf` of each entry; empty if all have the default."""
        if not any(source.filter_conf for source in self.sources):
            return ()
        return tuple(source.filter_conf or default for source in self.sources)


def _check_weights(sources: tuple[SourceConf, ...]) -> None:
    """Raise ValueError if some sources of a level have a weight, others have none."""
    weighted = [source for source in sources if source.weight is not None]
    if weighted and len(weighted) < len(sources):
        raise ValueError(
            f"{len(weighted)} of {len(sources)} sources of one level have a weight: give all one, "
            "or none"
        )


def load_mixture(path: str | Path) -> MixtureConf:
    """Read a mixture file.

    Raises:
        ConfigError: the file cannot be read, or holds unknown keys or impossible values; the
            message names each.
    """
    from wenet_uio.config.yaml_file import read_yaml  # PyYAML is not needed to read one list

    return parse(MixtureConf, read_yaml(path), str(path))
