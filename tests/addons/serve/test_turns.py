"""Segments of several recordings take turns at the model."""

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest

from tests.support.serve.raw_clients import until
from wenet_uio.addons.serve import turns as turns_module
from wenet_uio.addons.serve.turns import Turns
from wenet_uio.audio.interruption import interruptible
from wenet_uio.search.decode import Search
from wenet_uio.search.types import DecodeOptions

GREEDY = Search(["ctc_greedy_search"], DecodeOptions())
BEAM = Search(["ctc_prefix_beam_search"], DecodeOptions())


@contextmanager
def turns_behind_one(most_segments=4):
    """Turns whose first one lasts until the event is set; and those that were decoded after it."""
    turns, event, decoded = Turns(most_segments, lambda _: None), threading.Event(), []

    def decode(segments):
        decoded.append(list(segments))
        if "bad" in segments:
            raise ValueError("bad")
        return [segment.upper() for segment in segments]

    def take(search, segments):
        return pool.submit(turns.take, search, decode, segments)

    turns.start()
    with ThreadPoolExecutor(16) as pool:
        begun = threading.Event()
        pool.submit(turns.take, GREEDY, lambda _: [begun.set() or event.wait(60)], ["first"])
        assert begun.wait(60)
        try:
            yield turns, take, event, decoded
        finally:
            event.set()
            turns.stop()
    turns.join(60)
    assert not turns.is_alive()


def in_order(turns, take, *batches):
    """Let batches wait one after the other -> their futures."""
    waiting = []
    for search, segments in batches:
        waiting.append(take(search, segments))
        assert until(lambda: len(turns._waiting) == len(waiting))
    return waiting


def test_batches_of_equal_searches_share_a_turn_as_far_as_they_fit():
    with turns_behind_one() as (turns, take, event, decoded):
        batches = [
            (GREEDY, ["a", "b"]),
            (BEAM, ["c"]),
            (GREEDY, ["d", "e", "f"]),
            (GREEDY, ["g"]),
            (GREEDY, ["h"]),
            (BEAM, ["i"]),
        ]
        waiting = in_order(turns, take, *batches)
        event.set()
        results = [batch.result(60) for batch in waiting]
    assert decoded == [["a", "b", "g", "h"], ["c", "i"], ["d", "e", "f"]]
    assert results == [[segment.upper() for segment in segments] for _, segments in batches]


def test_a_batch_that_is_larger_than_a_turn_is_decoded_alone():
    with turns_behind_one(2) as (turns, take, event, decoded):
        waiting = in_order(turns, take, (GREEDY, ["a", "b", "c"]), (GREEDY, ["d"]))
        event.set()
        assert [batch.result(60) for batch in waiting] == [["A", "B", "C"], ["D"]]
    assert decoded == [["a", "b", "c"], ["d"]]


def test_a_batch_that_fails_fails_no_batch_beside_it():
    with turns_behind_one() as (turns, take, event, _):
        before, bad, after = in_order(
            turns, take, *((GREEDY, [name]) for name in ("a", "bad", "b"))
        )
        event.set()
        assert (before.result(60), after.result(60)) == (["A"], ["B"])
        with pytest.raises(ValueError, match="bad"):
            bad.result(60)


def test_who_is_interrupted_waits_no_longer_and_is_not_decoded():
    with turns_behind_one() as (turns, take, event, decoded):

        def vanish():
            with interruptible(lambda: 1 / 0):
                turns.take(GREEDY, decoded.append, ["vanished"])

        with ThreadPoolExecutor(1) as other, pytest.raises(ZeroDivisionError):
            other.submit(vanish).result(60)
        (later,) = [take(GREEDY, ["a"])]
        event.set()
        assert later.result(60) == ["A"]
    assert decoded == [["a"]]


def test_nobody_waits_for_turns_that_have_stopped():
    with turns_behind_one() as (turns, take, _, decoded):
        (waiting,) = in_order(turns, take, (GREEDY, ["a"]))
        turns.stop()
        for batch in (waiting, take(GREEDY, ["b"])):
            with pytest.raises(CancelledError):
                batch.result(60)
    assert decoded == []


def test_streams_that_wait_for_the_model_go_first(monkeypatch):
    monkeypatch.setattr(turns_module, "YIELD_SECONDS", 60.0)
    with turns_behind_one() as (turns, take, event, _):
        turns.calm.clear()
        (waiting,) = in_order(turns, take, (GREEDY, ["a"]))
        event.set()
        assert not wait((waiting,), 0.3).done
        turns.calm.set()
        assert waiting.result(60) == ["A"]


def test_streams_that_are_always_late_do_not_stop_recordings(monkeypatch):
    monkeypatch.setattr(turns_module, "YIELD_SECONDS", 0.05)
    with turns_behind_one() as (turns, take, event, _):
        turns.calm.clear()
        event.set()
        assert take(GREEDY, ["a"]).result(60) == ["A"]
