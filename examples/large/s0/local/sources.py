"""The sources of the recipe: a yaml list of name, data (folder with train, dev, test) and weight."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.config.base import ConfigError, Section, parse
from wenet_uio.config.mixture import Weight


class Source(Section):
    """One corpus, prepared by its own recipe."""

    name: str
    data: Path
    """Folder of its parts."""
    weight: Weight


class Sources(Section):
    """All of them."""

    sources: tuple[Source, ...]


def read_sources(path: Path) -> tuple[Source, ...]:
    """Read sources.yaml.

    Raises:
        ConfigError: every problem in it; two sources of one name.
    """
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not yaml: {' '.join(str(error).split())}") from None
    sources = parse(Sources, {"sources": values}, str(path)).sources
    names = [source.name for source in sources]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"{path}: expected sources with names of their own, found {', '.join(names) or 'none'}")
    return sources
