"""Read the sources of the recipe: a yaml list of name, data and weight.

`data` is a folder with train, dev and test.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import field_validator

from wenet_uio.config.base import ConfigError, Section, parse
from wenet_uio.config.source import Weight
from wenet_uio.config.yaml_file import read_yaml


class Source(Section):
    """One corpus, prepared by its own recipe."""

    name: str
    data: Path
    """Folder of the parts; a relative path starts at the folder of the yaml."""
    weight: Weight

    @field_validator("name")
    @classmethod
    def _fits_paths_and_keys(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name, re.ASCII):
            raise ValueError(
                "the name of a source must be of letters, digits, - and _, since folders and keys "
                "begin with it"
            )
        return name

    def part(self, data: Path) -> Path:
        """Return the folder below `data` that holds the training part of this source."""
        return data / "sources" / self.name


class Sources(Section):
    """The sources of a recipe."""

    sources: tuple[Source, ...]


def read_sources(path: Path) -> tuple[Source, ...]:
    """Read sources.yaml; relative folders in it start at the folder of the yaml.

    Raises:
        ConfigError: the file is missing or not a list of sources, or two sources have the same
            name. The message lists every problem.
    """
    if not path.is_file():
        raise ConfigError(
            f"{path}: No such file or directory; name the yaml of your corpora with --sources"
        )

    values = read_yaml(path)
    if not isinstance(values, list) or not values:
        raise ConfigError(
            f"{path}: expected a list with a line `- {{name: …, data: …, weight: …}}` for each "
            "source"
        )

    sources = parse(Sources, {"sources": values}, str(path)).sources
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"{path}: expected sources with different names, found {', '.join(names)}"
        )

    return tuple(
        source.model_copy(update={"data": path.parent / source.data}) for source in sources
    )
