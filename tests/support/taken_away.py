"""Where add-ons were taken away, a test that asks for one, and is told so, is skipped: a plugin of
pytest for tests/without.sh.
"""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

TOLD = re.compile(r"No module named '(wenet_uio\.addons[\w.]*)'")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return skipped_if_told((yield), item)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return skipped_if_told((yield), collector)


def skipped_if_told(report, node):
    """Make a skip of a failure whose message names an add-on that was taken away."""
    told = TOLD.search(report.longreprtext + report.capstderr) if report.failed else None
    if told:
        report.outcome = "skipped"
        report.longrepr = (str(node.path), 0, f"asks for {told[1]}")
    return report
