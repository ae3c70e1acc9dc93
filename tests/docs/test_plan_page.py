"""The page of a plan in the manual is what `plan_report.py --html` writes today."""

from tests.support.docs.plan_page import PAGE, make_page


def test_the_page_of_the_manual_is_fresh(corpora, tmp_path):
    make_page(corpora, tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_bytes() == PAGE.read_bytes(), (
        "write it anew: python -m tests.support.docs.plan_page"
    )
