"""What a model tells people who do not know what to say: sentences to try, its words, its languages.

`examples.yaml` in the folder of a run has them. This is the only module that reads and writes it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from wenet_uio.base.files import written_aside
from wenet_uio.base.run_files import EXAMPLES
from wenet_uio.config import Config, ConfigError
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.interfaces import DecodingModel

MOST_SENTENCES = 5
MOST_WORDS = 100
"""A model with more words knows too many to name."""
MOST_TEXTS = 200
"""Texts of a list in the file; the file may come from a stranger."""
MOST_CHARACTERS = 200
"""Characters of a text in the file."""
HEAD = """\
# What the page of the server says of this model. Stage 5 of the recipe writes this file anew.
# sentences: of the development set, which the model reads right; words: all, if there are few.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examples:
    """What is said of a model."""

    sentences: tuple[str, ...] = ()
    """Texts that it reads right."""
    words: tuple[str, ...] = ()
    """All that it was trained with, if they are few."""
    languages: tuple[str, ...] = ()
    """Codes such as en."""


def examples_of(folder: Path, model: DecodingModel, config: Config) -> Examples:
    """Return what is said of a model; without languages in the file, those that the model names."""
    examples = read_examples(folder)
    if examples.languages:
        return examples

    languages = model.prompt_languages or tuple(config.tokenizer_conf.languages or ())
    return replace(examples, languages=languages)


def read_examples(folder: str | Path) -> Examples:
    """Read the file of a model; empty if there is none.

    A file that cannot be used is a warning: the model recognises without it.
    """
    path = Path(folder, EXAMPLES)
    if not path.exists():
        return Examples()

    try:
        return _parse_examples(read_yaml(path), str(path))
    except ConfigError as error:
        log.warning("warning: %s; no example is shown", error)
        return Examples()


def _parse_examples(values: Any, where: str) -> Examples:
    """Read the content of the file.

    Raises:
        ConfigError: it is another one.
    """
    names = list(asdict(Examples()))
    if not isinstance(values, Mapping) or not set(values) <= set(names):
        raise ConfigError(f"{where}: expected lists of texts: {', '.join(names)}")

    return Examples(**{name: _parse_texts(values[name], f"{where}: {name}") for name in values})


def _parse_texts(value: Any, where: str) -> tuple[str, ...]:
    """Read one of the lists.

    Raises:
        ConfigError: it is none, or is too long.
    """
    if not isinstance(value, list) or len(value) > MOST_TEXTS:
        raise ConfigError(f"{where}: expected a list of at most {MOST_TEXTS} texts")

    for text in value:
        if not isinstance(text, str):
            raise ConfigError(f"{where}: expected texts, found {text!r:.40}; put it in quotes")
        if len(text) > MOST_CHARACTERS:
            raise ConfigError(
                f"{where}: a text of {len(text)} characters, at most {MOST_CHARACTERS}"
            )
    return tuple(value)


def write_examples(folder: str | Path, examples: Examples) -> Path:
    """Write the file of a model, and return its path."""
    path = Path(folder, EXAMPLES)
    values = {name: list(texts) for name, texts in asdict(examples).items()}
    with written_aside(path, "w") as file:
        file.write(HEAD)
        yaml.safe_dump(values, file, sort_keys=False, allow_unicode=True, width=1000)

    return path
