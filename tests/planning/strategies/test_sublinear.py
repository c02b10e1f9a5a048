"""`sublinear`: the memory of about sqrt(n) layers, for at most one more forward pass (Chen et al. 2016)."""

from math import sqrt

import pytest

from layermem.planning.hints import Hints
from layermem.planning.recomputation import recompute_seconds, seconds_again
from layermem.planning.strategies import get_strategy
from layermem.planning.sublinear_search import sublinear_candidates
from layermem.schedule.arena_planner import ArenaPlanner
from tests.planning.chains import Planned, chain
from tests.planning.jobs import solver_job


@pytest.mark.parametrize("layers", [9, 16, 36, 64, 144, 400])
def test_the_least_plan_of_a_chain_takes_two_to_three_times_sqrt_n(layers):
    """k segments of n/k layers: k - 1 ends and the batch are kept, and one segment is live with two gradients."""
    planned = Planned("sublinear", chain(layers), 0)
    assert 2 * sqrt(layers) <= planned.units <= 2 * sqrt(layers) + 4


@pytest.mark.parametrize("budget", [0, 12, 20, 40, 60, 66])
def test_no_op_runs_more_than_twice(budget):
    repeated = Planned("sublinear", chain(64), budget).repeated
    assert len(set(repeated)) == len(repeated) <= 64


@pytest.mark.parametrize("net", ["residual", "inception"])
def test_of_the_plans_that_fit_it_takes_the_one_that_recomputes_least(net, tmp_path):
    (graph, *_), costs = solver_job(net, tmp_path)
    evaluator = ArenaPlanner([graph], costs)
    candidates = sublinear_candidates(graph, costs, evaluator, Hints())
    seconds, again = set(), seconds_again(graph, costs)
    for budget in sorted({each.live_bytes for each in candidates}):
        plan = get_strategy("sublinear").make(graph, costs, budget, evaluator, Hints())
        least = min(each.recompute_seconds for each in candidates if each.live_bytes <= budget)
        assert evaluator.live_bytes(plan) <= budget and recompute_seconds(plan, again) in (0, least)
        seconds.add(least)
    assert len(seconds) > 1


def test_without_a_budget_it_takes_the_fewest_bytes():
    assert Planned("sublinear", chain(36)).plan == Planned("sublinear", chain(36), 0).plan
