import json
from pathlib import Path

import pytest

from tests.support import preloaded

GUARANTEES = Path(__file__).parents[3] / "lab" / "guarantees"
QUESTIONS = ["once", "steps", "resume_ranks"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Ours and the broken loader at toy size, with the packages of this interpreter."""
    out = tmp_path_factory.mktemp("guarantees")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GUARANTEES))
        import run

        loaders = ["ours", "ours_dropping_one"]
        here = [f"{name}={preloaded.python()}" for name in loaders]
        found = run.main(
            [
                "--toy",
                "--out",
                str(out),
                "--loaders",
                *loaders,
                "--python",
                *here,
                "--trials",
                *QUESTIONS,
            ]
        )
    assert json.loads((out / "results.json").read_text()) == found
    return found, (out / "results.md").read_text()


def test_our_loader_passes_every_trial(results):
    verdicts = {name: verdict["result"] for name, verdict in results[0]["ours"]["trials"].items()}
    assert verdicts == dict.fromkeys(QUESTIONS, "pass")


def test_a_buffer_that_drops_a_sample_fails_and_the_lost_key_is_named(results):
    trials = results[0]["ours_dropping_one"]["trials"]
    assert trials["once"]["result"] == "fail"
    lost = trials["once"]["evidence"]["1 rank"]
    assert (lost["lost"], len(lost["lost_keys"])) == (1, 1)
    assert "1 rank: 1 lost" in trials["once"]["summary"]
    assert trials["resume_ranks"]["result"] == "fail"
    assert trials["steps"]["result"] == "pass"


def test_the_table_has_a_row_for_each_trial_and_a_note_for_each_failure(results):
    rows = [line for line in results[1].splitlines() if line.startswith("| ")]
    assert rows[0] == "| trial | ours | ours_dropping_one |"
    assert "| every sample once | pass | fail (1) |" in rows
    assert "1. ours_dropping_one, every sample once: 1 rank: 1 lost" in results[1]
