"""Names of models on a hub: `hf://org/name`, or `hf://org/name@revision`; the option --revision."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

SCHEME = "hf://"
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
REVISION = re.compile(r"[\w.][\w./-]{0,250}", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubAddress:
    """A model of a hub."""

    name: str
    """org/name."""
    revision: str | None = None
    """Branch, tag or commit; None: the main branch."""

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}" + (f"@{self.revision}" if self.revision else "")

    @property
    def in_python(self) -> str:
        """What from_pretrained takes: org/name, or org/name@revision."""
        return str(self).removeprefix(SCHEME)

    @property
    def is_commit(self) -> bool:
        """Whether the revision is a commit, whose files never change."""
        return self.revision is not None and COMMIT.fullmatch(self.revision) is not None


def is_hub_address(path: object) -> bool:
    """Tell whether a path begins with `hf://`."""
    return str(path).startswith(SCHEME)


def hub_address(text: str, revision: str | None = None) -> HubAddress:
    """Parse `org/name` or `hf://org/name`, each with or without `@revision`.

    Args:
        text: what the user gave.
        revision: that of an option, if the text has none.

    Raises:
        ValueError: the text has another form, or two revisions are given.
    """
    name, at, named = text.removeprefix(SCHEME).partition("@")
    if not NAME.fullmatch(name):
        raise ValueError(f"{text}: expected a model of the form org/name")
    if at and revision is not None and named != revision:
        raise ValueError(f"{text}: two revisions, {named} and {revision}; give one of them")

    chosen = named if at else revision
    if chosen is not None and (not REVISION.fullmatch(chosen) or ".." in chosen):
        raise ValueError(
            f"{text}: revision {chosen!r}: expected the name of a branch or tag, or a commit"
        )

    return HubAddress(name, chosen)


def add_revision(parser: argparse.ArgumentParser) -> None:
    """Add --revision, the option of commands that take a model of a hub."""
    parser.add_argument(
        "--revision",
        help="branch, tag or commit of a model of a hub, as in hf://org/name@REVISION (default: the "
        "main branch)",
    )


def named_model(path: str, revision: str | None) -> str:
    """Return `hf://org/name@revision` of a model of a hub; the path of another model.

    Raises:
        ValueError: the address has a wrong form, or there is a revision of another model.
    """
    if is_hub_address(path):
        return str(hub_address(path, revision))
    if revision is not None:
        raise ValueError(
            f"--revision {revision}: only a model of a hub has revisions; {path} is not hf://org/name"
        )
    return path


def require_no_name(path: str) -> None:
    """Check that a path that does not exist is not the name of a model without `hf://`.

    A name is not taken for a model of a hub: a wrong path would download a stranger's model.

    Raises:
        FileNotFoundError: it has the form org/name.
    """
    if NAME.fullmatch(path) and not Path(path).exists():
        raise FileNotFoundError(
            f"{path}: no such file or folder; a model of a hub is {SCHEME}{path}"
        )


def name_of(path: str) -> str:
    """Return the name of a model for people: org/name, or that of its file or folder."""
    return hub_address(path).name if is_hub_address(path) else Path(path).resolve().name
