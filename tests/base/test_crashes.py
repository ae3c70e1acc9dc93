"""Calls that crash their process, rehearsed in a forked process."""

import errno
import os
import signal

import pytest

from wenet_uio.base.crashes import careful, describe_exit, has_crashed, rehearse


def end_with(number):
    return lambda: os.kill(os.getpid(), number)


def test_a_rehearsal_says_how_the_call_crashed():
    with careful():
        assert rehearse(end_with(signal.SIGSEGV)) == "SIGSEGV"
        assert rehearse(end_with(signal.SIGABRT)) == "SIGABRT"
        assert rehearse(lambda: os._exit(3)) == "exit status 3"


def test_calls_that_return_or_raise_do_not_crash():
    with careful():
        assert rehearse(lambda: None) is None
        assert rehearse(lambda: 1 / 0) is None


def test_a_process_that_is_not_careful_does_not_rehearse():
    called = []
    assert rehearse(lambda: called.append(0)) is None
    assert called == []


def test_a_killed_rehearsal_is_an_error_of_the_machine():
    with careful(), pytest.raises(OSError, match="SIGKILL; did memory run out") as caught:
        rehearse(end_with(signal.SIGKILL))
    assert caught.value.errno == errno.ENOMEM


def test_only_ends_that_are_no_fault_of_the_machine_are_crashes():
    assert [has_crashed(status) for status in (None, 0, -9, -15, -2)] == [False] * 5
    assert [has_crashed(status) for status in (-11, -6, -7, -8, 1)] == [True] * 5
    assert (describe_exit(-11), describe_exit(1)) == ("SIGSEGV", "exit status 1")
