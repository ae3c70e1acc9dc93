"""Pages of the keys of train.yaml: one table for each section, from the pydantic models of
wenet_uio.config.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.generator.glossary import MEANINGS
from docs.generator.markdown import code, escaped, paragraphs, table
from wenet_uio.base.options import field_docs
from wenet_uio.config.choices import CHOICES, KNOWN_NAMES
from wenet_uio.config.config import Config
from wenet_uio.config.source import SourceConf, source_sections
from wenet_uio.config.train import ENGINES
from wenet_uio.config.without_effect import KEYS

NAMED = {**KNOWN_NAMES, "train_engine": ENGINES}
"""{key of the top level: the names that it may have}."""
TYPES = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    dict: "section",
    type(None): "null",
}
BOUNDS = {
    annotated_types.Gt: "above {}",
    annotated_types.Ge: "at least {}",
    annotated_types.Lt: "below {}",
    annotated_types.Le: "at most {}",
}


@dataclass(frozen=True)
class Keys:
    """The keys of one section of train.yaml."""

    path: str
    """Such as `dataset_conf.batch_conf`; empty for the top level."""
    section: type[BaseModel]
    named: tuple[str, ...] = ()
    """Names of the part that select this section: `conformer` under `encoder`. Empty if nothing
    selects it."""
    base: type[BaseModel] = BaseModel
    """Its keys stand in a table of their own."""

    @property
    def page(self) -> str:
        """Its page, relative to the page of the top level."""
        return f"{self.path.split('.')[0]}.md" if self.path else "index.md"

    def fields(self) -> dict[str, FieldInfo]:
        """Return the keys of the yaml; fields that other keys set are none."""
        return {
            name: field
            for name, field in self.section.model_fields.items()
            if not field.exclude and name not in self.base.model_fields
        }


def sections() -> list[Keys]:
    """Return all sections, in the order of the top level; a section precedes the sections in it."""
    return list(_within(Keys("", Config)))


def _within(keys: Keys) -> Iterator[Keys]:
    yield keys
    for name, field in keys.fields().items():
        path = f"{keys.path}.{name}".removeprefix(".")
        part, conf, _ = name.partition("_conf")
        choices = CHOICES.get(part, {}) if conf and not keys.path else {}
        classes: dict[type[BaseModel], list[str]] = {}
        for choice, section in choices.items():
            classes.setdefault(section, []).append(choice)
        for section in _sections_in(field.annotation) if not classes else ():
            classes[section] = []
        for section, names in classes.items():
            if section is SourceConf and keys.base is SourceConf:
                continue  # a group of sources holds sources
            yield from _within(Keys(path, section, tuple(names)))
            if section is SourceConf:
                for of_type, types in source_sections().items():
                    yield from _within(Keys(path, of_type, types, SourceConf))


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections_in(part)]


def meaning(section: type[BaseModel], name: str) -> str:
    """Return what a key means: the docstring of the nearest class that has one, else the line of
    the glossary.

    Raises:
        ValueError: neither has the key.
    """
    for owner in section.__mro__:
        if (
            issubclass(owner, BaseModel)
            and owner is not BaseModel
            and name in (docs := field_docs(owner))
        ):
            return docs[name]

    text = MEANINGS.get(f"{section.__name__}.{name}") or MEANINGS.get(name)
    if text is None:
        raise ValueError(
            f"{section.__name__}.{name} in {section.__module__} has no meaning for the manual: write "
            "a docstring below the key"
        )
    return text


def type_text(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Return a type in words: `integer above 0`, `list of: text`, `integer, or null`."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(parts[0], (*parts[1:], *metadata))
    if origin in (Union, UnionType):
        return ", or ".join(dict.fromkeys(type_text(part) for part in parts)) + _bounds(metadata)
    if origin is Literal:
        return " or ".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
    if origin is tuple:
        return "list of: " + ", ".join(map(type_text, parts[:1] if parts[-1] is ... else parts))

    return (
        f"section of {type_text(parts[1])} values"
        if origin is dict
        else _plain_type(annotation) + _bounds(metadata)
    )


def _plain_type(annotation: Any) -> str:
    return "section" if _sections_in(annotation) else TYPES.get(annotation, "anything")


def _bounds(metadata: Sequence[Any]) -> str:
    """Return the limits that pydantic checks."""
    limits = [
        limit
        for constraint in metadata
        for limit in (constraint.metadata if isinstance(constraint, FieldInfo) else [constraint])
    ]
    shown = [
        text.format(f"{getattr(limit, type(limit).__name__.lower()):g}")
        for limit in limits
        for kind, text in BOUNDS.items()
        if type(limit) is kind
    ]
    return " " + " and ".join(shown) if shown else ""


def default_text(field: FieldInfo) -> str:
    """Return the default as yaml; `required` without one."""
    if field.is_required():
        return "required"

    default = field.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined or isinstance(default, BaseModel):
        return ""

    return code(json.dumps(default, ensure_ascii=False))


def keys_table(keys: Keys) -> str:
    """Return the table of a section."""
    rows = []
    for name, field in keys.fields().items():
        kind = escaped(type_text(field.annotation, field.metadata))
        if not keys.path and name in NAMED:
            kind = " or ".join(code(choice) for choice in NAMED[name])
        if not keys.path and _sections_in(field.annotation):
            kind = f"[{kind}]({name}.md)"

        rows.append([code(name), kind, default_text(field), escaped(meaning(keys.section, name))])

    return table(("key", "type", "default", "meaning"), rows)


def key_pages() -> dict[str, str]:
    """Return {page: Markdown}: the top level and its short keys on index.md, each larger section on
    a page of its own.
    """
    pages: dict[str, list[str]] = {}
    for keys in sections():
        if not keys.path:
            pages["index.md"] = [_index_head(), keys_table(keys), _without_effect()]
            continue

        parts = pages.setdefault(keys.page, [f"# {keys.path.split('.')[0]}"])
        title = f"{keys.path} of {', '.join(keys.named)}" if keys.named else keys.path
        parts += [f"## {escaped(title)}"] if title != keys.page.removesuffix(".md") else []
        parts.append(paragraphs(inspect.cleandoc(keys.section.__doc__ or "")))
        if keys.fields():
            parts.append(keys_table(keys))

    return {name: "\n\n".join(parts) + "\n" for name, parts in pages.items()}


def _index_head() -> str:
    return (
        "# Keys of train.yaml\n\n"
        "These tables are made from the classes that check a train.yaml (`wenet_uio/config/`). An "
        "unknown key is an "
        "error that names the nearest known key. `--override_config encoder_conf.num_blocks=6` "
        "changes a key on the "
        "command line."
    )


def _without_effect() -> str:
    rows = [[code(".".join(path)), escaped(reason)] for path, reason in KEYS.items()]
    return (
        "## Keys of WeNet that change nothing\n\nThese keys are accepted, and the log names them.\n\n"
        + table(("key", "why"), rows)
    )
