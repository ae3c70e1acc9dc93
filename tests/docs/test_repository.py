"""READMEs and notebooks are pages of the site, and their links lead to its pages."""

import json
import posixpath
import re

import pytest

from docs.generator.pages import PLAN, pages
from docs.generator.repository import (
    LINK,
    notebook_page,
    notebooks,
    page_of,
    readmes,
    site_links,
)
from tests.support.docs.blocks import DOCS

ROOT = DOCS.parent
WRITTEN = sorted(
    {*readmes(), "README.zh.md"}
    | {path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")}
)


@pytest.fixture(scope="module")
def all_pages() -> set[str]:
    return {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md")} | pages().keys()


def targets(text):
    """The relative targets of the links outside of code."""
    found = [match["target"] for match in LINK.finditer(text)]
    return [target for target in found if target and not re.match(r"[a-z]+:", target)]


def test_every_readme_for_users_and_every_notebook_is_a_page_of_its_own():
    assert len(readmes()) > 50
    for path in (*readmes(), *notebooks()):
        assert page_of(path) in pages(), path
    assert len({page_of(path) for path in readmes()}) == len(readmes())
    for path in ROOT.glob("wenet_uio/**/README.md"):
        assert path.relative_to(ROOT).as_posix() in readmes()


def broken_on_the_site(text, page, all_pages):
    """The links of the page that lead to no page or file of the site."""
    folder = posixpath.dirname(page)
    broken = []
    for target in targets(site_links(text, page)):
        linked = target.split("#")[0]
        path = posixpath.normpath(posixpath.join(folder, linked)) if linked else page
        if path not in {*all_pages, PLAN} and not (DOCS / path).is_file():
            broken.append(target)
    return broken


@pytest.mark.parametrize("path", WRITTEN)
def test_every_link_of_a_readme_or_page_opens_in_a_clone_and_on_the_site(path, all_pages):
    file = ROOT / path
    text = file.read_text(encoding="utf-8")
    for target in targets(text):
        linked_path = target.split("#")[0]
        linked = (file.parent / linked_path).resolve() if linked_path else file
        assert linked.exists(), target
        assert linked.suffix != ".md" or anchor_of(target) in (None, *anchors_in(linked)), target

    page = page_of(path)
    if path != "README.zh.md":  # of the clone alone
        assert broken_on_the_site(text, page, all_pages) == []


def test_links_of_generated_pages_lead_to_pages(all_pages):
    generated = all_pages - {page_of(path) for path in WRITTEN}
    broken = {page: broken_on_the_site(pages()[page], page, all_pages) for page in generated}
    assert {page: links for page, links in broken.items() if links} == {}


def anchor_of(target):
    return target.partition("#")[2] or None


def anchors_in(page):
    """The anchors that GitHub gives to headings, and those that a page sets itself."""
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", title).strip().lower() for title in titles]
    return [*(title.replace(" ", "-") for title in words), *re.findall(r"\{#([\w-]+)\}", text)]


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("[a](../search/README.md#b)", "wenet_uio/export.md", "[a](search.md#b)"),
        (
            "[`a`](b.py), [c](../../docs/install.md)",
            "wenet_uio/export.md",
            "`a`, [c](../install.md)",
        ),
        ("[a](../../examples/fsdd/s0)", "how-to/mix.md", "[a](../examples/fsdd/s0.md)"),
        ("[a](docs/how-to/)", "overview.md", "[a](how-to/index.md)"),
        ("[a](plan.ipynb)", "notebooks/index.md", "[a](plan.md)"),
        ("![a](../assets/a.png)", "how-to/mix.md", "![a](../assets/a.png)"),
        ("`[a](b.py)` [c](https://d.e)", "how-to/mix.md", "`[a](b.py)` [c](https://d.e)"),
        (r"| `a\|b` | [c](../install.md) |", "zh/index.md", "| `a|b` | [c](../install.md) |"),
        ("```python\nx[a](b)\n```\n", "how-to/mix.md", "```python\nx[a](b)\n```\n"),
    ],
)
def test_a_link_to_a_file_leads_to_its_page_and_code_stays_as_it_is(text, page, expected):
    assert site_links(text, page) == expected


@pytest.mark.parametrize("path", notebooks())
def test_the_page_of_a_notebook_has_every_cell_in_order(path):
    text = notebook_page(path)
    place = 0
    for cell in json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        place = text.index(source, place) + len(source)
    assert text.count("```python") == len(
        re.findall(r'"cell_type": "code"', (ROOT / path).read_text())
    )
