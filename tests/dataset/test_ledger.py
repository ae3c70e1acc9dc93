import json
import os
from collections import Counter

import pytest

from wenet_uio.dataset.ledger import Account, Ledger, reconciled

COUNTS = {
    "all": 12,
    "planned": 9,
    "read": 7,
    "filtered/too_long": 2,
    "bad/unreadable": 2,
    "bad/not_indexed": 1,
}


def keys(path):
    return [json.loads(line)["key"] for line in open(path)]


def test_an_account_adds_up_all_samples_by_reason():
    account = reconciled(Counter(COUNTS))
    assert account == Account(12, 7, {"too_long": 2}, {"unreadable": 2, "not_indexed": 1})
    text = "12 utterances: 7 read, 2 filtered (2 too_long), 3 bad (1 not_indexed, 2 unreadable)"
    assert str(account) == text
    points = {"all": 12, "read": 7, "filtered": 2, "bad": 3}
    assert account.scalars() == {
        **points,
        "filtered_too_long": 2,
        "bad_unreadable": 2,
        "bad_not_indexed": 1,
    }


@pytest.mark.parametrize("name", sorted(COUNTS.keys() - {"planned"}))
@pytest.mark.parametrize("difference", [-1, 1])
def test_one_utterance_too_many_or_too_few_is_a_bug(name, difference):
    with pytest.raises(RuntimeError, match="do not add up, which is a bug in wenet_uio"):
        reconciled(Counter({**COUNTS, name: COUNTS[name] + difference}))


def test_without_a_total_the_planned_samples_are_all():
    assert reconciled(Counter(planned=3, read=2) + Counter({"bad/x": 1})).all == 3


def test_forget_removes_later_lines_of_one_list_and_keeps_other_lists(tmp_path):
    ledger = Ledger(tmp_path / "exp" / "bad.jsonl")
    for data_list, data_pass, batch, key in (
        ("a", 0, 3, "k1"),
        ("a", 1, 2, "k2"),
        ("b", 1, 9, "k3"),
        ("a", 1, 5, "k4"),
    ):
        ledger.write(data_list, data_pass, batch, key, "unreadable", "über")
    Ledger(ledger.path).forget("a", 1, 3)
    assert keys(ledger.path) == ["k1", "k2", "k3"]
    Ledger(ledger.path).forget("a")
    assert keys(ledger.path) == ["k3"]


def test_a_line_cut_short_by_a_kill_is_forgotten(tmp_path):
    ledger = Ledger(tmp_path / "bad.jsonl")
    for key in ("k1", "k2"):
        ledger.write("a", 0, 0, key, "unreadable", "")
    os.truncate(ledger.path, ledger.path.stat().st_size - 5)
    Ledger(ledger.path).forget("a", 1)
    assert keys(ledger.path) == ["k1"]


def test_forget_without_a_file_makes_no_file(tmp_path):
    Ledger(tmp_path / "bad.jsonl").forget("a")
    assert not list(tmp_path.iterdir())
