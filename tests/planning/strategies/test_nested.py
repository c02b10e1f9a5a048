"""`nested`: below the floor of lower sets on a chain by hand, never behind `recompute`, and its refusal."""

import pytest

from layermem.errors import BudgetError
from layermem.planning.costs import Costs, Rates
from layermem.planning.hints import Hints
from layermem.planning.nested_search import nested_planner
from layermem.schedule.arena_planner import ArenaPlanner
from tests.compiling import compile
from tests.planning.chains import Planned, chain
from tests.planning.free_form import UNIT, FreeForm, random_step
from tests.planning.jobs import random_job, solver_job
from tests.planning.strategies.test_recompute import ask


@pytest.mark.parametrize(("budget", "repeats"), [(10, 0), (9, 1), (8, 2), (7, 3), (6, 4), (4, 21)])
def test_a_chain_of_eight_by_hand(budget, repeats):
    """To six units as by lower sets, whose floor that is.  With four, x0 and the two gradients of an op leave one for
    what is recomputed beside it: x7 stays for b8; for b7 ... b2 the ops f1 ... f6, f1 ... f5 and so on run again."""
    planned = Planned("nested", chain(8), budget)
    assert (planned.units <= budget, len(planned.repeated)) == (True, repeats)


def test_with_five_units_ops_run_again_more_than_once():
    planned = Planned("nested", chain(8), 5)
    assert planned.units == 5 < Planned("recompute", chain(8), 5).units
    assert max(planned.repeated.count(name) for name in planned.repeated) == 2


def test_nested_takes_the_fewest_bytes_below_its_minimum():
    assert Planned("nested", chain(8), 3).units == Planned("nested", chain(8)).units == 4


@pytest.mark.parametrize("net", ["chain", "residual", "inception", *range(6)])
def test_it_never_recomputes_more_nor_needs_more_than_recompute(net, tmp_path):
    job = random_job(net) if isinstance(net, int) else solver_job(net, tmp_path)
    least, most = ask("recompute", job, 0)[0], ask("recompute", job, 10**9)[0]
    assert ask("nested", job, 0)[0] <= least
    for budget in {least, (least + most) // 2, (least + 3 * most) // 4}:
        live, recomputed, _ = ask("nested", job, budget)
        assert live <= budget and recomputed <= ask("recompute", job, budget)[1] + 1e-12


def test_a_budget_below_its_minimum_is_refused_with_the_minimum():
    graphs, costs = random_job(3)
    least = compile(graphs, strategy="nested", costs=costs).arena_bytes
    assert compile(graphs, strategy="nested", costs=costs, budget_bytes=least).arena_bytes <= least
    with pytest.raises(BudgetError) as refused:
        compile(graphs, strategy="nested", costs=costs, budget_bytes=least - 256)
    assert refused.value.minimum_bytes == least


def test_no_plan_is_below_the_optimum_of_all_orders_and_nearly_all_reach_it():
    """Random steps, polished plans (planning/nested_search.py): the optimum may run ops in any other order."""
    costs = Costs(Rates(flops=1.0, memory=1e9, d2h=1.0, h2d=1.0, launch=0.0))
    equal = cases = 0
    for seed in range(24):
        step = random_step(seed, 2 + seed % 3, parameter=seed % 2 == 1)
        evaluator, optimum = ArenaPlanner([step], costs), FreeForm(step, costs)
        planner = nested_planner(step, costs, evaluator, Hints(host_budget_bytes=0))
        least = evaluator.live_bytes(planner.min_memory_plan("nested", evaluator))
        for budget in (least, least + UNIT):
            plan, seconds = planner.plan_within(budget, "nested", evaluator), optimum.least_seconds(budget, 0)
            assert plan is not None and seconds is not None and evaluator.live_bytes(plan) <= budget
            assert evaluator.estimate_seconds(plan) >= seconds - 1e-9, seed
            equal += evaluator.estimate_seconds(plan) <= seconds + 1e-9
            cases += 1
    assert equal >= cases - 2
