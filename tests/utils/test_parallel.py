"""Two functions at the same time."""

import threading

import pytest

from layermem.utils.parallel import run_both


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
