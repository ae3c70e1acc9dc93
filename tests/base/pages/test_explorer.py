"""The explorer of a plan in a browser: mouse, keyboard, phone, dark and light, and large plans."""

from __future__ import annotations

from importlib import resources

import pytest

from tests.base.pages.test_plan_js import planned
from tests.dataset.plan.test_epoch_plan import measure
from tests.support.data.synthetic import IndexOnlyCorpus
from tests.support.markup import check_markup
from tests.support.serve.browser import PATIENCE, chromium
from wenet_uio.base import pages
from wenet_uio.base.pages.charts import bar_chart, line_chart
from wenet_uio.config.batch import BatchConf
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.prepare.diagnose import plan_page
from wenet_uio.prepare.diagnose.plan_page import PlanPage
from wenet_uio.prepare.diagnose.plan_report import report_plan

RANKS = 4
BATCHES = BatchConf(batch_type="static", batch_size=7)


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


def write_page(folder, sizes):
    corpus = IndexOnlyCorpus(sizes)
    rule = measure(BATCHES, speeds=False)
    page = PlanPage(corpus, rule, RANKS)
    report = report_plan(corpus, rule, seed=1, epoch=0, world_size=RANKS, on_batch=page.collect)
    page.write(report, "a plan", str(folder / "plan.html"))
    plan = EpochPlan(corpus, rule, seed=1, epoch=0, division=divide(corpus, RANKS))
    return folder / "plan.html", plan


def opened(browser, path, **options):
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda request: faults.append(request.url) if request.url != path.as_uri() else None,
    )
    page.goto(path.as_uri())
    return page, faults


@pytest.mark.parametrize(
    ("utterances", "expected"),
    [
        (3, "This page holds the figures and the utterances of the batch."),
        (8, "This page holds the figures of all 2 batches, and the utterances of all 2."),
    ],
)
def test_the_page_says_how_much_of_the_epoch_it_holds(tmp_path, utterances, expected):
    path, _ = write_page(tmp_path, [utterances])
    assert expected in " ".join(path.read_text().split())


def test_keyboard_and_buttons_show_the_batch_of_the_planner(browser, tmp_path):
    path, plan = write_page(tmp_path, [100, 57])
    check_markup(path.read_text())
    page, faults = opened(browser, path)
    for ranks in (1, 2, 3, 4, 8):
        page.get_by_role("button", name=f"{ranks} rank", exact=False).first.focus()
        page.locator(f"[data-ranks='{ranks}']").click()
        page.locator("#grid").focus()
        page.keyboard.press("Home")
        for _ in range(ranks - 1):
            page.keyboard.press("ArrowDown")
        for press, step in (("ArrowRight", 1), ("End", plan.steps_from(0, ranks) - 1)):
            page.keyboard.press(press)
            expected = planned(plan, step * ranks, ranks, ranks - 1)
            name = page.locator("#cell-name").text_content()
            assert name.startswith(f"Step {step}, rank {ranks - 1}: ")
            assert name.endswith(f"batch {expected['batch']}") or expected["isShare"]
            keys = page.locator("#utterances .key").all_text_contents()
            assert keys == [key for piece in expected["keys"] for key in piece]
            cost = 100 * expected["cost"] / plan.measure.policy.bound
            assert f"cost {cost:.1f} % of the bound" in page.locator("#cell-figures").text_content()
    assert faults == []


def test_a_batch_stays_chosen_when_it_is_dealt_to_another_rank(browser, tmp_path):
    path, _ = write_page(tmp_path, [200])
    page, _ = opened(browser, path)
    page.locator("#grid").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.locator("#cell-name").text_content() == "Step 2, rank 1: batch 9"
    page.locator("#ranks").fill("2")
    assert page.locator("#cell-name").text_content() == "Step 4, rank 1: batch 9"
    page.locator("#ranks").fill("0")  # refused
    assert "2 ranks" in page.locator("#dealt").text_content()


@pytest.mark.all
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_page_without_scrolling_sideways_and_a_tap_chooses(
    browser, tmp_path, scheme
):
    path, _ = write_page(tmp_path, [300])
    options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "color_scheme": scheme}
    page, faults = opened(browser, path, **options)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.locator("#canvas").bounding_box()
    width = int(page.locator("#zoom").input_value())
    page.locator("#canvas").tap(position={"x": 40 + 2.5 * width, "y": 22 + 38 + 10})
    assert box["width"] < 390
    assert page.locator("#cell-name").text_content() == f"Step 2, rank 1: batch {2 * RANKS + 1}"
    drawn = page.evaluate(
        "(() => { const canvas = document.getElementById('canvas');"
        " return new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size })()"
    )
    assert drawn > 20
    assert faults == []


@pytest.mark.all
@pytest.mark.parametrize(
    ("utterances", "text"),
    [
        (1, "halved, and 3 ranks have no utterance."),
        (3, "halved, and 1 rank has no utterance."),
        (4, "halved until every rank has one."),
    ],
)
def test_the_page_says_how_many_ranks_have_no_utterance(browser, tmp_path, utterances, text):
    path, _ = write_page(tmp_path, [utterances])
    page, faults = opened(browser, path)
    assert page.locator("#dealt").text_content().endswith(text)
    assert faults == []


@pytest.mark.all
@pytest.mark.parametrize("width", [390, 1400])
def test_no_label_of_a_chart_is_cut_off(browser, width):
    drawn = "".join(
        [
            line_chart("steps", "step", {"": [(0, 1), (5_000_000, 2)]}),
            bar_chart("speech", "characters/s", [9.0, 100.0, 10_001.0], [1, 1], is_log=True),
            bar_chart("level", "of full scale", [0.003, 0.007, 0.01201], [1, 1], is_log=True),
        ]
    )
    folder = resources.files(pages)
    style = "".join(folder.joinpath(f"{name}.css").read_text() for name in ("base", "report"))
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.set_content(f"<style>{style}</style><div class='charts'>{drawn}</div>")
    cut_off = page.evaluate(
        """() => [...document.querySelectorAll("svg text")].filter((label) => {
          const inner = label.getBoundingClientRect();
          const outer = label.closest("svg").getBoundingClientRect();
          return inner.left < outer.left || inner.right > outer.right;
        }).map((label) => label.textContent)"""
    )
    assert page.locator("svg text").count() > 20
    assert cut_off == []


@pytest.mark.all
def test_only_what_is_seen_of_a_large_plan_is_drawn(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_page, "MOST_UTTERANCES", 700)
    path, plan = write_page(tmp_path, [70_000])
    assert plan.num_batches > 9000
    page, faults = opened(browser, path)
    counted = page.evaluate(
        """async () => {
          const proto = CanvasRenderingContext2D.prototype, fill = proto.fillRect;
          let cells = 0;
          proto.fillRect = function (...box) { cells += 1; return fill.apply(this, box); };
          document.getElementById("grid").scrollLeft = 5000;
          await new Promise((done) => setTimeout(done, 500));
          return cells;
        }"""
    )
    assert 0 < counted < 2000
    page.locator("#grid").focus()
    page.keyboard.press("End")
    assert page.locator("#utterances .key").count() > 0, "the last batches have their utterances"
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    assert (
        "holds the utterances of the first 100 batches" in page.locator("#unlisted").text_content()
    )
    assert faults == []
