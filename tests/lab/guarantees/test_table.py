from pathlib import Path

import pytest

GUARANTEES = Path(__file__).parents[3] / "lab" / "guarantees"


def test_a_reason_that_several_loaders_share_is_one_note_without_a_name_and_a_failure_names_its_loader():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GUARANTEES))
        import table

    excluded = {"result": "out of scope", "summary": "no lengths"}
    failed = {"result": "fail", "summary": "1 rank: 1 lost"}
    given = {"versions": {"torch": "1"}, "date": "today", "machine": "2 cores", "commit": "abc"}
    results = {
        name: {**given, "trials": {"once": failed, "padding": excluded}}
        for name in ("one", "other")
    }
    lines = table.markdown(results).splitlines()
    assert "| every sample once | fail (1) | fail (2) |" in lines
    assert "| padding at most 10 % | out of scope (3) | out of scope (3) |" in lines
    assert lines[-3:] == [
        "1. one, every sample once: 1 rank: 1 lost",
        "2. other, every sample once: 1 rank: 1 lost",
        "3. no lengths",
    ]


def test_a_loader_that_cannot_be_installed_is_named_with_the_reason():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GUARANTEES))
        import table

    lines = table.markdown(
        {"one": {"reason": "No matching distribution", "date": "today"}}
    ).splitlines()
    assert "| one | not installed: No matching distribution | today | | |" in lines
    assert "| every sample once | not run |" in lines
