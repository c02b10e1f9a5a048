"""Jobs, and what strategies make of them."""

from dataclasses import replace

import pytest

from layermem.api import job_of_net, job_of_solver
from layermem.backends.base import get_device
from layermem.compiler import compile
from layermem.errors import BudgetError, InputError
from layermem.graph.net import Net
from layermem.planning.base import Fate, Gap, Hints, Plan
from layermem.planning.costs import model_costs
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.plan_report import Job, planned
from layermem.utils.units import aligned
from tests.nets import NETS, solver_file

REFERENCE = get_device("reference")
COSTS = model_costs("reference")


def job_of(name: str) -> Job:
    return job_of_net(Net(read_net_text(NETS[name]), 0), REFERENCE, COSTS)


@pytest.fixture(params=NETS)
def job(request) -> Job:
    return job_of(request.param)


def test_the_baseline_is_what_strategy_caffe_takes(job):
    program = compile(job.graphs, strategy="caffe", costs=COSTS)
    assert job.baseline_bytes == program.arena_bytes
    assert job.baseline_seconds == pytest.approx(program.timeline().seconds)


def test_the_baseline_of_a_solver_has_its_test_nets_in_the_same_arena(tmp_path):
    job = job_of_solver(solver_file("residual", tmp_path), REFERENCE, COSTS)
    assert len(job.graphs) == len(job.nets) == 2
    assert job.baseline_bytes == compile(job.graphs, strategy="caffe", costs=COSTS).arena_bytes
    alone = job_of_net(job.nets[0], REFERENCE, COSTS)
    assert job.bvlc_bytes > alone.bvlc_bytes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_minimum_of_a_strategy_fits_and_a_byte_less_does_not(job, strategy):
    minimum = planned(job, strategy).minimum
    found = planned(job, strategy, minimum)
    assert found.feasible and found.peak <= minimum
    refused = planned(job, strategy, minimum - 1)
    assert not refused.feasible and refused.refused.minimum == refused.minimum == minimum
    with pytest.raises(BudgetError):
        job.compiler(strategy).program(minimum - 1)


def test_auto_needs_no_more_than_any_other_strategy(job):
    least = planned(job, "auto").minimum
    assert all(least <= planned(job, name).minimum for name in STRATEGIES)


def test_without_a_name_a_budget_brings_auto_and_no_budget_liveness(job):
    assert planned(job).strategy == "liveness" and planned(job, budget="90%").strategy == "auto"


def test_a_percentage_is_of_the_baseline(job):
    assert job.budget("50%") == job.baseline_bytes // 2
    assert job.budget("1MiB") == 2**20 and job.budget(77) == 77 and job.budget(None) is None


def test_the_fullest_moment_tells_all_bytes_in_use(job):
    for strategy in ("caffe", "liveness", "hybrid"):
        found = planned(job, strategy)
        assert sum(found.residents_by_kind.values()) == found.program.max_live
        assert sum(aligned(r.nbytes) for r in found.residents) == found.program.max_live


def test_a_refusal_names_the_strategies_that_would_fit(job):
    budget = planned(job, "hybrid").minimum
    assert "hybrid " in dict(planned(job, "caffe", budget).refusal().details)["fits"]
    assert "no other strategy" in str(planned(job, "caffe", 1).refusal())


def test_what_a_plan_does_is_counted():
    job = job_of("chain")
    assert planned(job, "liveness").again == planned(job, "liveness").copied == 0
    lean = planned(job, "recompute", 1)
    assert lean.again == len(lean.program.train.rows) - len(job.graphs[0].ops) > 0
    away = planned(job, "inter")
    assert away.copied == sum(
        job.graphs[0].buffers[row.what].nbytes for row in away.program.train.rows if row.verb == "offload"
    )
    assert away.overhead > 0


def test_a_saved_plan_that_cannot_run_is_refused():
    job = job_of("chain")
    order = planned(job).program.train.plan.order
    for plan in (
        Plan("liveness", ("nobody.forward", *order)),
        Plan("liveness", tuple(reversed(order))),
        Plan("liveness", order[1:]),
        Plan("liveness", order, {Gap("nothing", 0): Fate.OFFLOAD}),
        Plan("liveness", order, {Gap("conv1", 0): Fate.DROP}),
        Plan("liveness", (*order, order[0])),
    ):
        with pytest.raises(InputError, match="the saved plan cannot be run"):
            planned(job, plan=plan)


def test_a_saved_plan_that_offloads_more_than_the_host_budget_is_refused_by_itself():
    free = job_of("chain")
    found = planned(free, "hybrid", 1)
    job = replace(free, hints=Hints(host_budget=256))
    with pytest.raises(BudgetError, match="^host budget 256 B is below") as caught:
        planned(job, plan=found.program.train.plan)
    assert caught.value.host and caught.value.minimum == found.program.host_bytes > 256
