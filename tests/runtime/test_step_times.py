"""Measured times of a step: what is kept of each run, and that measuring changes no bit."""

import time

import numpy as np
import pytest

from layermem.backends.base import Stopwatch
from layermem.interactive.solver import Solver
from layermem.runtime.step_times import StepTimes
from tests.nets import solver_file


def test_the_last_run_begins_at_zero_and_the_means_leave_the_first_run_out():
    times = StepTimes()
    times.add([(10.0, 12.0), (12.0, 20.0)])
    assert times.last == [(0.0, 2.0), (2.0, 10.0)] and times.mean == [2.0, 8.0] and times.mean_step == 10.0
    times.add([(30.0, 31.0), (33.0, 35.0)])
    assert times.last == [(0.0, 1.0), (3.0, 5.0)] and times.mean == [1.0, 2.0] and times.mean_step == 5.0
    times.add([(40.0, 43.0), (43.0, 47.0)])
    assert times.runs == 3 and times.mean == [2.0, 3.0] and times.mean_step == 6.0


def test_a_stopwatch_times_each_call_of_the_last_run():
    watch = Stopwatch(2)
    calls = [watch.around(0, "compute", lambda: None), watch.around(1, "compute", lambda: time.sleep(0.01))]
    for call in (*calls, *calls):
        call()
    (begin, end), (later, last) = watch.times()
    assert begin <= end <= later and last - later >= 0.01


def test_an_error_of_a_call_is_that_of_the_timed_call():
    with pytest.raises(ZeroDivisionError):
        Stopwatch(1).around(0, "compute", lambda: 1 / 0)()


@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_timed_training_has_the_bits_of_one_that_is_not(iter_size, tmp_path):
    def trained(timed):
        fields = {"iter_size": iter_size, "test_iter": None, "test_interval": None}
        with Solver(solver_file("chain", tmp_path, **fields), device="cpu", timed=timed) as solver:
            solver.step(3)
            runner = solver.runner
            return {name: runner.read(name) for name in runner.persistent}, runner

    (bits, plain), (timed, runner) = trained(False), trained(True)
    assert bits.keys() == timed.keys() and all(np.array_equal(bits[name], timed[name]) for name in bits)
    assert [each.runs for each in plain.times] == [0] * iter_size
    assert [each.runs for each in runner.times] == [3 * iter_size, 3][:iter_size]
    assert len(runner.times[0].last) == len(runner.program.train.instructions)
    assert all(0 <= begin <= end for begin, end in runner.times[0].last)
