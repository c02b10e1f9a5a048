"""The net of `make train`: LeNet on 1,437 real digits, tested on 360 others, in half of what Caffe would take."""

from pathlib import Path

import pytest

from layermem.interactive.solver import Solver
from layermem.proto.read import read_solver

FILE = Path(__file__).parents[2] / "prototxt" / "digits" / "solver.prototxt"


def digits(folder, **options):
    """The solver of prototxt/digits, with its snapshots in `folder`."""
    folder.mkdir(exist_ok=True)
    file = read_solver(FILE)
    file.message.snapshot_prefix = str(folder / "digits")
    return Solver(file, **options)


@pytest.mark.whole
@pytest.mark.samples(2)
@pytest.mark.parametrize(
    ("device", "iterations", "accuracy", "loss"), [("reference", 100, 0.9, 0.3), ("cpu", 300, 0.975, 0.05)]
)
def test_half_of_what_caffe_takes_is_enough_to_learn_the_digits(device, iterations, accuracy, loss, tmp_path):
    with digits(tmp_path, device=device, budget="50%", iterations=iterations) as solver:
        assert solver.program.arena_bytes <= solver.report.budget_bytes == solver.job.baseline_bytes // 2
        solver.solve()
        assert solver.test(0)["accuracy"] >= accuracy
        assert solver.loss < loss
        assert solver.runner.measured_peak_bytes == solver.program.arena_bytes


@pytest.mark.samples(2)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_strategies_and_budgets_write_the_same_snapshot_of_the_digits(device, tmp_path):
    runs = {
        "caffe": {"strategy": "caffe"},
        "liveness": {"strategy": "liveness"},
        "half": {"budget": "50%"},
        "third": {"budget": "33%", "strategy": "hybrid", "host_budget": "1TiB"},
        "fourth": {"budget": "25%", "strategy": "hybrid", "host_budget": "1TiB"},
    }
    found, sizes = {}, {}
    for name, options in runs.items():
        with digits(tmp_path / name, device=device, iterations=12, **options) as solver:
            solver.solve()
            sizes[name] = solver.program.arena_bytes
        found[name] = (tmp_path / name / "digits_iter_12.caffemodel").read_bytes()
    assert len(set(found.values())) == 1
    assert sizes["caffe"] > 2 * sizes["half"] > 2 * sizes["third"] > 2 * sizes["fourth"]


def test_a_resumed_run_reads_on_in_the_data_set_where_it_stopped(tmp_path):
    with digits(tmp_path / "whole", device="reference", iterations=25) as whole:
        whole.solve()
    with digits(tmp_path / "parts", device="reference", iterations=10) as first:
        first.solve()
    path = tmp_path / "parts" / "digits_iter_10.solverstate"
    with digits(tmp_path / "parts", device="reference", iterations=25, snapshot=path) as second:
        second.solve()
    for name in ("digits_iter_25.caffemodel", "digits_iter_25.solverstate.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
