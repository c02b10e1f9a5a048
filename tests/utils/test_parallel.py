"""Two functions at the same time."""

import os
import threading
from contextlib import suppress

import pytest

from layermem.utils.parallel import Once, begin_beside, run_both


def test_both_run_at_the_same_time_and_return_in_order():
    meeting = threading.Barrier(2, timeout=20)
    assert run_both(lambda: (meeting.wait(), "a")[1], lambda: (meeting.wait(), "b")[1]) == ("a", "b")


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_either_is_raised_once_both_have_ended(failing):
    ended = []

    def run(number):
        def function():
            ended.append(number)
            if number == failing:
                raise ValueError("here")

        return function

    with pytest.raises(ValueError, match="here"):
        run_both(run(0), run(1))
    assert sorted(ended) == [0, 1]


def test_ctrl_c_does_not_wait_for_the_second_one():
    release = threading.Event()

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_both(interrupt, lambda: release.wait(20))
    release.set()


def test_a_copy_of_the_process_returns_its_result_and_changes_nothing_here():
    here, changed = os.getpid(), []
    result = begin_beside(lambda: (changed.append(1), os.getpid(), list(range(100_000)))[1:])
    process, numbers = result()
    assert numbers == list(range(100_000)) and changed == []
    assert (process != here) == hasattr(os, "fork")


@pytest.mark.parametrize("result", [lambda: threading.Lock(), lambda: [][1]])
def test_where_the_copy_fails_the_function_runs_here(result):
    ran = []

    def function():
        ran.append(os.getpid())
        return result()

    with suppress(IndexError):
        assert begin_beside(function)() is not None  # a lock cannot be sent
    assert ran == [os.getpid()]


def test_without_copies_the_function_runs_here(monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    assert begin_beside(os.getpid)() == os.getpid()


def test_shared_work_falls_to_one_of_the_process_and_its_copy():
    work = Once()
    result = begin_beside(work.take)
    assert sorted([work.take(), result()]) == [False, True]
    assert not work.take()
