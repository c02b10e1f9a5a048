"""Rankings and curves of `compare` and reports."""

from dataclasses import replace

import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.planning.job import Job
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.comparison import (
    bound_curve,
    budget_grid,
    evaluate_all,
    min_live_bytes,
    rank,
    select_strategies,
    trade_curve,
)
from layermem.report.plan_report import evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS

COSTS = model_costs("reference")


@pytest.fixture(scope="module", params=["residual", "inception"])
def job(request) -> Job:
    return net_job(
        Net(read_net_text(NETS[request.param]), 0), StepOptions(device=get_device("reference"), costs=COSTS)
    ).with_host_budget("1TiB")


@pytest.mark.parametrize("budget", ["50%", None])
def test_reports_of_all_strategies_are_those_of_one_after_the_other(job, budget):
    names, shown = select_strategies(None), []
    reports = evaluate_all(job, names, budget, lambda name, done: shown.append(name))
    alone = [evaluate(replace(job), name, budget) for name in names]
    assert [report.strategy for report in reports] == names and sorted(shown) == sorted(names)
    assert [(r.program.train.plan, r.peak_bytes, r.seconds) for r in reports] == [
        (r.program.train.plan, r.peak_bytes, r.seconds) for r in alone
    ]


def test_strategies_that_fit_come_first_the_fastest_before_the_others(job):
    budget = evaluate(job, "hybrid").minimum_bytes * 2
    order = rank(evaluate(job, name, budget) for name in STRATEGIES)
    fits = [found.feasible for found in order]
    assert fits == sorted(fits, reverse=True) and True in fits and False in fits
    times = [found.seconds for found in order if found.feasible]
    assert times == sorted(times)
    peaks = [found.peak_bytes for found in order if not found.feasible]
    assert peaks == sorted(peaks)


def test_a_trade_falls_in_time_as_memory_grows_and_stays_above_the_bound(job):
    budgets = budget_grid(job)
    assert budgets == sorted(budgets)
    bound = dict(bound_curve(job, budgets))
    for name in ("hybrid", "recompute", "auto"):
        points = trade_curve(job, name, budgets).curve
        assert points == sorted(points) and [y for _, y in points] == sorted((y for _, y in points), reverse=True)
        for nbytes, overhead in points:
            at_least = max((o for b, o in bound.items() if b >= nbytes), default=0.0)
            assert overhead >= min(at_least, 0.0) - 1e-9
            assert all(overhead >= o - 1e-9 for b, o in bound.items() if b >= nbytes)


def test_a_strategy_that_knows_no_budget_is_one_point(job):
    ((nbytes, overhead),) = trade_curve(job, "liveness", budget_grid(job)).curve
    assert nbytes == evaluate(job, "liveness").peak_bytes and overhead == pytest.approx(0)


def test_the_minimum_is_what_planning_finds(job):
    assert min_live_bytes(job, "intra") == evaluate(job, "intra").program.max_live_bytes


def test_all_strategies_are_chosen_but_the_slow_one_unless_it_is_named():
    assert select_strategies("all") == list(STRATEGIES)
    assert select_strategies(None) == [name for name in STRATEGIES if name != "recompute-exact"]
    assert select_strategies("auto, liveness,auto") == ["auto", "liveness"]
    for names in ("magic", "liveness,magic", ","):
        with pytest.raises(InputError, match="choose"):
            select_strategies(names)
