"""The thread pool behind every kernel of the cpu device."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.cpu.support.launch import launch
from tests.native.numbers import at


@pytest.fixture
def three_threads():
    before = cpu.threads()
    cpu.set_threads(3)
    yield
    cpu.set_threads(before)


def sums(memory, count: int):
    """A launch that adds two arrays, split into many tasks, and its expected result."""
    a, b, y = memory.put(np.arange(count)), memory.put(np.ones(count)), memory.empty(count)
    return launch("eltwise_sum", count, y=at(y), xs=[at(a), at(b)], coefficients=[1.0, 1.0]), y, a + b


def test_every_task_is_done_however_long_the_threads_slept(three_threads, memory):
    launch, y, expected = sums(memory, 1 << 18)
    for pause in (0, 0.0001, 0.01, 0, 0.005):
        time.sleep(pause)
        y[...] = np.nan
        launch()
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("pool_threads", [1, 2, 3])
def test_kernels_of_several_threads_run_at_once(pool_threads, memory):
    """Updates run while communication does, for example."""
    launches = [sums(memory, count) for count in (1 << 18, 1 << 16, 100)]
    before = cpu.threads()
    cpu.set_threads(pool_threads)
    failures = []

    def repeat(launch, y, expected):
        for _ in range(50):
            y[...] = np.nan
            launch()
            if not np.array_equal(y, expected):
                failures.append(y)

    threads = [threading.Thread(target=repeat, args=each) for each in launches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu.set_threads(before)
    assert not failures


@pytest.mark.skipif(sys.platform != "linux", reason="reads from Linux where each thread may run")
def test_threads_that_moved_to_another_core_stay_free_to_run_on_all(three_threads, memory):
    bound, *_ = sums(memory, 1 << 18)
    for _ in range(5):
        time.sleep(0.01)  # long enough that they fall asleep and are woken somewhere
        bound()
    time.sleep(0.01)
    free = os.sched_getaffinity(0)
    assert all(os.sched_getaffinity(int(thread)) == free for thread in os.listdir("/proc/self/task"))


LIMITED = """
import resource, sys
import numpy as np
from layermem._native import cpu
from layermem.backends.cpu.support.launch import launch

a, y = np.arange(1 << 16, dtype=np.float32), np.empty(1 << 16, np.float32)
bound = launch("eltwise_sum", a.size, y=y.ctypes.data, xs=[a.ctypes.data, a.ctypes.data], coefficients=[1.0, 1.0])
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + int(sys.argv[1]) * 2**20  # space for few stacks of threads
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
cpu.set_threads(256)
for _ in range(3):
    bound()
assert (y == a + a).all()
cpu.set_threads(2)
bound()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space, and reads it from /proc")
@pytest.mark.parametrize("megabytes", [4, 40, 100])  # for no, for few and for more helpers
def test_a_pool_works_with_the_helpers_that_the_system_gives(megabytes):
    subprocess.run([sys.executable, "-c", LIMITED, str(megabytes)], check=True, timeout=60)


TRAINING_AT_EXIT = """
import sys, threading, time
import numpy as np
from layermem._native import cpu
from layermem.backends.cpu.support.launch import launch

cpu.set_threads(2)
a, y = np.ones(1 << 16, np.float32), np.empty(1 << 16, np.float32)
bound = launch("eltwise_sum", a.size, y=y.ctypes.data, xs=[a.ctypes.data, a.ctypes.data], coefficients=[1.0, 1.0])
began = threading.Event()

def train():
    while True:
        bound()
        began.set()

threading.Thread(target=train, daemon=True).start()
began.wait()
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.samples(4)
@pytest.mark.parametrize("seconds", [0, 0.003, 0.01, 0.02])
def test_python_ends_while_a_daemon_thread_runs_kernels(seconds):
    ended = subprocess.run(
        [sys.executable, "-c", TRAINING_AT_EXIT, str(seconds)], timeout=60, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
