"""Functions that run at the same time."""

import os
import threading
import time
from contextlib import suppress

import pytest

from layermem.utils.parallel import begin_beside, map_beside, map_both, run_both


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
def test_the_function_runs_here_if_the_copy_fails(result):
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


def test_items_are_shared_with_a_copy_and_results_keep_their_order():
    here = os.getpid()
    results = map_beside(lambda number: (number * number, os.getpid(), time.sleep(0.01)), range(20))
    assert [square for square, *_ in results] == [number * number for number in range(20)]
    processes = {process for _, process, _ in results}
    assert here in processes and len(processes) == 1 + hasattr(os, "fork")


def test_items_for_which_the_copy_fails_are_done_here():
    here = os.getpid()

    def function(number):
        if os.getpid() != here:
            raise ValueError(number)
        return number

    assert map_beside(function, range(5)) == [*range(5)]
    assert map_beside(function, [7]) == [7] and map_beside(function, []) == []


def test_an_error_of_an_item_is_raised_here_and_leaves_no_open_file():
    def files():
        return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0

    before = files()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            map_beside(lambda number: 1 // number, [0, 1, 0])
        assert map_beside(lambda number: number, [1, 2, 3]) == [1, 2, 3]
    assert files() == before
