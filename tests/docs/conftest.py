"""The built site of the manual."""

from pathlib import Path

import pytest

from tests.support.docs.blocks import DOCS
from tests.support.made_once import made_once


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The built site; a warning of MkDocs is an error."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    def make(folder: Path) -> None:
        build(load_config(str(DOCS.parent / "mkdocs.yml"), site_dir=str(folder), strict=True))

    return made_once(tmp_path_factory, "site", make)
