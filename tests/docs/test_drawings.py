"""Drawings of the manual can be read in light and dark colours, and have a text in their place."""

import re
from xml.etree import ElementTree

import pytest

from docs.generator.drawings import ASSETS, with_drawings
from tests.support.docs.blocks import DOCS

ROOT = DOCS.parent
DRAWINGS = sorted(ASSETS.glob("*.svg"))
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted(DOCS.glob("**/*.md"))]


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_stands_alone_and_has_the_colour_of_the_system(path):
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    names = {element.tag.split("}")[1] for element in root.iter()}
    assert names <= {"svg", "title", "style", "text", "rect", "path"}
    assert root.get("fill") == "currentColor"
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"(?:href|url\()[^>]*", text) == []


def test_every_drawing_is_on_a_page_and_every_use_has_a_text_alternative():
    used = set()
    for page in PAGES:
        for alternative, name in re.findall(
            r"!\[([^\]]*)\]\([^)]*assets/([\w-]+\.svg)\)", page.read_text(encoding="utf-8")
        ):
            assert len(alternative) > 30, page
            assert '"' not in alternative
            used.add(name)
    assert used == {path.name for path in DRAWINGS}


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_in_a_page_a_drawing_has_the_colours_of_the_page_and_its_alternative(path):
    html = f'<p><img alt="What it shows" src="../assets/{path.name}" /></p>'
    drawn = ElementTree.fromstring(with_drawings(html))[0]
    assert drawn.tag.endswith("}svg")
    assert drawn.get("aria-label") == "What it shows"
    assert drawn.get("color") is None
    assert drawn.find("{*}style") is None
    assert len(drawn) == len(ElementTree.fromstring(path.read_text(encoding="utf-8"))) - 2


def test_other_images_stay_as_they_are():
    html = '<p><img alt="a" src="../assets/report.png" /></p>'
    assert with_drawings(html) == html
