"""Functions for logs and several processes."""

import time

import pytest

from layermem import caffe
from layermem.errors import InputError


def test_there_is_one_process():
    assert (caffe.solver_count(), caffe.solver_rank(), caffe.has_nccl()) == (1, 0, False)
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)
    caffe.set_multiprocess(True)
    for call, value in ((caffe.set_solver_count, 2), (caffe.set_solver_rank, 1)):
        with pytest.raises(InputError, match="asks for several processes, and a net runs in one; use"):
            call(value)


def test_log_lines_go_to_standard_error(capsys):
    caffe.init_log()
    caffe.log("a line")
    assert capsys.readouterr().err.endswith("] a line\n")


def test_a_timer_measures_from_start_to_stop():
    timer = caffe.Timer()
    assert timer.ms == 0
    timer.start()
    time.sleep(0.02)
    timer.start()  # it runs already
    time.sleep(0.02)
    timer.stop()
    measured = timer.ms
    timer.stop()
    assert 40 <= measured == timer.ms < 4000
