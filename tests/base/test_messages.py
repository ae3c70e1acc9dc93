import threading
from concurrent.futures import ThreadPoolExecutor

from wenet_uio.base.messages import listed, warn_once


def test_all_of_a_few_items_are_listed():
    assert listed(["a", "b"], 2) == "a, b"
    assert listed([], 2) == ""


def test_the_first_of_many_items_are_listed_and_the_others_counted():
    assert listed(dict.fromkeys("abcd"), 2) == "a, b and 2 more"
    assert listed(["a", "b", "c"], 1, "; ") == "a and 2 more"


def test_a_message_of_many_threads_is_logged_once(caplog):
    messages = [f"message {number}" for number in range(200)]
    threads = 8
    start = threading.Barrier(threads)

    def warn():
        start.wait()
        for message in messages:
            warn_once(message)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(warn) for _ in range(threads)]:
            done.result()

    assert sorted(caplog.messages) == sorted(messages)
