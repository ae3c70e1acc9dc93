"""The pages of the manual hang together; if MkDocs is installed, the site is built strictly."""

import re
from pathlib import Path

import pytest
import yaml

import wenet_uio
from docs.generator.pages import pages as generated
from tests.support.docs.blocks import DOCS

ROOT = DOCS.parent
WRITTEN = sorted(DOCS.glob("**/*.md"))


def ids(path):
    return str(path.relative_to(DOCS))


@pytest.fixture(scope="module")
def all_pages():
    return {path.relative_to(DOCS).as_posix() for path in WRITTEN} | generated().keys()


@pytest.mark.parametrize("path", WRITTEN, ids=ids)
def test_a_page_is_short_and_its_links_lead_to_pages(path, all_pages):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:|#", link):
            target = (path.parent / link.split("#")[0]).resolve()
            page = target.relative_to(DOCS).as_posix()
            assert page in all_pages or (page.endswith((".ipynb", ".png")) and target.is_file()), (
                link
            )


@pytest.mark.parametrize("path", WRITTEN, ids=ids)
def test_a_file_of_the_project_that_a_page_names_exists(path):
    named = re.findall(
        r"`((?:wenet_uio|examples|tools|tests|docs)/[\w./+-]+)`", path.read_text(encoding="utf-8")
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_navigation_has_every_written_page(all_pages):
    nav = re.findall(
        r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    )
    assert set(nav) <= all_pages
    assert [path for path in map(ids, WRITTEN) if path not in nav] == []


def test_the_site_is_built_without_a_warning_and_needs_no_other_host(tmp_path):
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    built = list(tmp_path.glob("**/*.html"))
    assert len(built) > 60
    for page in built:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]*src="?https?:', text) == []
        assert re.findall(r'<link[^>]*rel="?(?:stylesheet|icon|preconnect)[^>]*https?:', text) == []
        assert re.findall(r"<code>[^<]*(?:\\\||&amp;#124;)[^<]*</code>", text) == [], (
            "an escape in code is shown"
        )
    assert "make_shard_list" in Path(tmp_path, "search", "search_index.js").read_text(
        encoding="utf-8"
    )


def test_the_version_is_the_same_in_all_files():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == wenet_uio.__version__
    assert cited["license"] == "Apache-2.0"
    assert wenet_uio.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_files_and_links_of_the_pages_for_contributors_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"\]\(([\w./-]+)", text) + re.findall(
        r"`([\w.]+/[\w./-]*\w\.\w+|\w+\.md)`", text
    )
    assert [
        path
        for path in named
        if not (ROOT / path).exists() and not path.startswith(("build/", "local/"))
    ] == []
