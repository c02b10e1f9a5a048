"""The thread pool behind every kernel of the cpu device."""

import os
import sys
import time

import numpy as np
import pytest

from layermem._native import cpu
from tests.native.numbers import at


@pytest.fixture
def three_threads():
    before = cpu.threads()
    cpu.set_threads(3)
    yield
    cpu.set_threads(before)


def sums(memory, count: int):
    """A launch that adds two arrays, cut into many tasks; and what it must give."""
    a, b, y = memory.put(np.arange(count)), memory.put(np.ones(count)), memory.empty(count)
    return cpu.eltwise_sum(count, y=at(y), xs=[at(a), at(b)], coefficients=[1.0, 1.0]), y, a + b


def test_every_task_is_done_however_long_the_threads_slept(three_threads, memory):
    launch, y, expected = sums(memory, 1 << 18)
    for pause in (0, 0.0001, 0.01, 0, 0.005):
        time.sleep(pause)
        y[...] = np.nan
        launch()
        np.testing.assert_array_equal(y, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="reads from Linux where each thread may run")
def test_threads_that_moved_to_another_core_stay_free_to_run_on_all(three_threads, memory):
    launch, *_ = sums(memory, 1 << 18)
    for _ in range(5):
        time.sleep(0.01)  # long enough that they fall asleep and are woken somewhere
        launch()
    time.sleep(0.01)
    free = os.sched_getaffinity(0)
    assert all(os.sched_getaffinity(int(thread)) == free for thread in os.listdir("/proc/self/task"))
