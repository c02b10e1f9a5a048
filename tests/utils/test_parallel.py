"""Two functions at the same time."""

import os
import threading
from contextlib import suppress

import pytest

from layermem.utils.parallel import Once, begin_beside, map_both, run_both


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


def test_items_are_shared_between_two_threads_and_results_have_their_order():
    meeting = threading.Barrier(2, timeout=20)

    def halve(number):
        if number < 4:
            meeting.wait()  # two at a time
        return number / 2, threading.get_ident()

    results = map_both(halve, range(4))
    assert [half for half, _ in results] == [0, 0.5, 1, 1.5] and len({ident for _, ident in results}) == 2
    assert map_both(halve, []) == [] and map_both(halve, [6]) == [(3, threading.get_ident())]


def test_an_error_for_an_item_is_raised():
    with pytest.raises(ZeroDivisionError):
        map_both(lambda number: 1 // number, [1, 0, 1])


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
