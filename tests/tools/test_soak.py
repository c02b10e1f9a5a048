"""Long training: a few iterations pass, and growth is detected."""

import os
import sys
from pathlib import Path

import pytest

from layermem.interactive.solver import Solver
from tools import soak
from tools.soak import GROWTH, Sample, findings

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="memory and files are read from /proc")
WORDS = ("--iterations", "60", "--every", "20", "--warm-up", "20")


@pytest.fixture
def soaked(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["soak.py", *words])
        return soak.main(), capsys.readouterr().out

    return run


def test_some_iterations_open_no_file_and_print_a_sample_each(soaked, monkeypatch):
    monkeypatch.setattr(soak, "TEST", 7)
    monkeypatch.setattr(soak, "SNAPSHOT", 10)
    monkeypatch.setattr(soak, "GROWTH", 64 << 20)  # growth in the first iterations does not count here
    status, said = soaked(*WORDS)
    table = [line.split() for line in said.splitlines()[1:-1]]
    assert status == 0 and [row[0] for row in table] == ["20", "40", "60"] and len({row[2] for row in table}) == 1
    assert said.endswith("soak: 60 iterations, 0 findings\n")


def test_a_file_that_each_step_leaves_open_is_found(soaked, monkeypatch):
    step, left = Solver.step, []

    def leaking(solver, count):
        left.append(os.open(os.devnull, os.O_RDONLY))
        step(solver, count)

    monkeypatch.setattr(Solver, "step", leaking)
    monkeypatch.setattr(soak, "GROWTH", 64 << 20)
    status, said = soaked(*WORDS)
    for file in left:
        os.close(file)
    assert status == 1 and "FOUND  1 more file descriptors are open at iteration 40 than at 20" in said
    assert "2 findings" in said


def test_memory_that_grows_after_the_warm_up_is_found():
    samples = [Sample(0, 0, 5), Sample(10, 100 << 20, 5), Sample(20, (100 << 20) + GROWTH, 5)]
    assert findings(samples, 10) == []
    assert findings([*samples, Sample(30, (100 << 20) + GROWTH + 4096, 5)], 10) == [
        "the resident set is 2,101,248 bytes larger at iteration 30 than at 10"
    ]
    assert len(findings(samples, 0)) == 2


def test_a_run_without_a_sample_after_the_warm_up_is_refused(soaked):
    with pytest.raises(SystemExit):
        soaked("--iterations", "100", "--warm-up", "100")
