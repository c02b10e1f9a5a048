"""Steps that are measured for planning: the timed ops, and the memory that it takes."""

import pytest

from layermem.api import build_net
from layermem.backends.base import get_device
from layermem.errors import BudgetError, InputError
from layermem.solver import measure
from layermem.solver.benchmark import Benchmark
from layermem.solver.jobs import StepOptions, net_job
from layermem.solver.measure import measure_step

DEVICE = get_device("cpu")


@pytest.fixture
def job():
    return net_job(build_net("prototxt/digits/train_val.prototxt", batch=2), StepOptions(device=DEVICE))


@pytest.mark.samples(2)
@pytest.mark.parametrize("budget", [None, "75%"])
def test_every_op_that_some_plan_within_the_budget_runs_is_timed(job, budget):
    measured, graph = measure_step(job, DEVICE, budget=budget, iterations=1), job.graphs[0]
    assert set(measured.seconds) == {op.name for op in (*graph.ops, *graph.fused_updates)} > set(measured.step)
    costs = measured.job_with_costs().costs
    assert costs.fingerprint == graph.fingerprint and costs.rates.flops == job.costs.rates.flops
    assert costs.rates.d2h == measured.d2h > 1e6


def test_no_arena_is_larger_than_the_budget(job, monkeypatch):
    sizes: list[int] = []
    arena = type(DEVICE).arena
    monkeypatch.setattr(
        type(DEVICE), "arena", lambda self, nbytes, **more: sizes.append(nbytes) or arena(self, nbytes, **more)
    )
    budget_bytes = job.resolve_budget("75%")
    measure_step(job, DEVICE, budget=budget_bytes, iterations=1)
    assert len(sizes) > 1 and max(sizes) <= budget_bytes


def test_a_step_that_fits_neither_budget_nor_machine_is_refused(job, monkeypatch):
    with pytest.raises(BudgetError):
        measure_step(job, DEVICE, budget="1KiB")
    monkeypatch.setattr(measure, "MEMORY_SHARE", 1e-9)
    with pytest.raises(InputError, match=r"measuring takes .* give a smaller --budget"):
        measure_step(job, DEVICE)


def test_ops_are_timed_behind_whole_steps_that_warm_up(job, monkeypatch):
    done: list[str] = []
    for name in ("step", "ops"):
        run = getattr(Benchmark, name)
        monkeypatch.setattr(
            Benchmark, name, lambda self, *given, name=name, run=run: done.append(name) or run(self, *given)
        )
    measure_step(job, DEVICE, iterations=1, warm_seconds=1e-6)
    assert done[:2] == ["step", "ops"] and done.count("step") >= done.count("ops")
