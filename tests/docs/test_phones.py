"""The pages of the manual can be read on a phone: nothing is clipped, nothing scrolls sideways."""

from __future__ import annotations

import pytest

from tests.support.serve.browser import PATIENCE, chromium

WIDTH = 390
"""Pixels of a common phone."""
PAGES = [
    "index.html",
    "overview.html",
    "ten-minutes.html",
    "concepts/shuffle-buffer.html",
    "concepts/plan.html",
    "concepts/failures.html",
    "concepts/randomness.html",
    "how-to/resume.html",
    "how-to/shards.html",
    "how-to/stores.html",
    "notebooks/plan.html",
    "examples/custom/s0.html",
    "reference/recipes.html",
    "reference/commands/index.html",
    "reference/commands/bin/train.html",
    "reference/commands/tools/check_data.html",
    "reference/train_yaml/index.html",
    "reference/train_yaml/dataset_conf.html",
    "wenet_uio/addons/nemo/config.html",
    "zh/index.html",
]
USUAL = (
    "index.html",
    "concepts/plan.html",
    "how-to/resume.html",
    "reference/commands/bin/train.html",
    "zh/index.html",
)
"""Pages that are opened in every change."""
OUTSIDE = """() => {
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const isReached = (element) => {
    for (let each = element.parentElement; each; each = each.parentElement)
      if (scrolls(each)) return true;
    return false;
  };
  return [...document.querySelectorAll(".md-content *")]
    .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
    .filter((element) => !isReached(element))
    .map((element) => element.outerHTML.slice(0, 80));
}"""
"""Elements that lie beyond the right edge and in nothing that scrolls."""
CUT_TEXTS = """() => [...document.querySelectorAll("svg.drawing text")].filter((text) => {
  const box = text.getBBox(), all = text.ownerSVGElement.viewBox.baseVal;
  return box.x < 0 || box.y < 0 || box.x + box.width > all.width || box.y + box.height > all.height;
}).map((text) => text.textContent)"""
"""Words of a drawing that leave it."""
FAR_MEANINGS = """() => [...document.querySelectorAll(".entries td:last-child")].filter((cell) => {
  const box = cell.getBoundingClientRect();
  return box.left < 0 || box.right > innerWidth + 1 || (cell.innerText && box.width < 200);
}).map((cell) => cell.innerText)"""
"""Meanings of options and keys that are not on the screen, or in a column of single words."""


@pytest.fixture(scope="module")
def phone(site):
    """A function that opens a page of the site on a phone."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 844})
        page.set_default_timeout(PATIENCE)

        def opened(name):
            page.goto((site / name).as_uri())
            return page

        yield opened


@pytest.mark.parametrize(
    "name", [pytest.param(page, marks=() if page in USUAL else pytest.mark.all) for page in PAGES]
)
def test_no_page_scrolls_sideways_and_no_text_is_clipped(phone, name):
    page = phone(name)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT_TEXTS) == []
    assert page.evaluate(FAR_MEANINGS) == []


def test_the_measures_notice_a_wide_element_and_a_cut_word(phone):
    page = phone("how-to/resume.html")
    page.evaluate(
        """() => {
          document.querySelector(".md-content h1").style.width = "600px";
          document.querySelector("svg.drawing text").setAttribute("x", "400");
        }"""
    )
    assert len(page.evaluate(OUTSIDE)) >= 1
    assert len(page.evaluate(CUT_TEXTS)) == 1
    assert not page.evaluate("document.documentElement.scrollWidth <= innerWidth")
