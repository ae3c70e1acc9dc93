"""The built site of the manual."""

import pytest

from tests.support.docs.blocks import DOCS


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The built site; a warning of MkDocs is an error."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(DOCS.parent / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder
