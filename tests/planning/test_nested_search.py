"""The native planner of nested recomputation on training graphs: hints, and one planner for many budgets."""

import pytest

from layermem.api import build_net, job_of
from layermem.planning.hints import Hints
from layermem.planning.lower_sets import lower_set_plan
from layermem.planning.nested_search import nested_planner
from layermem.planning.offloading import OFFLOADED_STATE
from layermem.planning.plan import ops_in_order
from layermem.planning.registry import MINIMUM_MEMORY
from layermem.schedule.arena_planner import ArenaPlanner
from tests.compiling import compile
from tests.planning.chains import UNIT, a_second_each, chain
from tests.planning.jobs import random_job, solver_job
from tests.planning.strategies.test_recompute import ask


def test_a_planner_serves_many_budgets_and_gives_none_below_its_least():
    net = chain(8)
    evaluator = ArenaPlanner([net], a_second_each(net))
    planner = nested_planner(net, a_second_each(net), evaluator, Hints())
    assert nested_planner(net, a_second_each(net), evaluator, Hints()) is planner
    least = evaluator.live_bytes(planner.min_memory_plan("nested", evaluator))
    assert least == 4 * UNIT and planner.plan_within(least - 1, "nested", evaluator) is None
    plans = [planner.plan_within(units * UNIT, "nested", evaluator) for units in (4, 5, 4)]
    assert plans[0] == plans[2] and all(plan is not None for plan in plans)
    assert [len(ops_in_order(net, plan.order)) - len(net.ops) for plan in plans if plan] == [21, 7, 21]


@pytest.mark.parametrize(("host", "repeats", "on_host"), [(None, 0, 4), (3, 1, 3), (1, 3, 1)])
def test_offloads_within_the_host_budget_take_the_place_of_recomputations(host, repeats, on_host):
    """Six units keep six of ten values (test_nested.py); a copy takes as long as an op."""
    net = chain(8)
    hints = Hints(host_budget_bytes=None if host is None else host * UNIT)
    evaluator = ArenaPlanner([net], a_second_each(net))
    planner = nested_planner(net, a_second_each(net), evaluator, hints)
    plan = planner.plan_with_offloads(6 * UNIT, (), 100.0, "mixed")
    assert plan is not None and evaluator.live_bytes(plan) <= 6 * UNIT
    assert len(ops_in_order(net, plan.order)) - len(net.ops) == repeats
    assert len({gap.buffer for gap in plan.decisions}) == on_host
    assert compile([net], strategy=plan, costs=a_second_each(net)).arena_bytes <= 6 * UNIT  # which checks it


def test_without_a_host_budget_and_without_state_there_is_no_plan_with_offloads():
    net = chain(4, parameters=True)
    evaluator = ArenaPlanner([net], a_second_each(net))
    planner = nested_planner(net, a_second_each(net), evaluator, Hints(host_budget_bytes=0))
    for kinds in OFFLOADED_STATE:
        assert planner.plan_with_offloads(100 * UNIT, kinds, 100.0, "mixed") is None


@pytest.mark.parametrize("seed", range(6))
def test_plans_with_offloads_of_random_graphs_pass_the_checker(seed):
    [net], costs = random_job(seed)
    evaluator = ArenaPlanner([net], costs)
    planner = nested_planner(net, costs, evaluator, Hints())
    least = evaluator.live_bytes(planner.min_memory_plan("nested", evaluator))
    for kinds in OFFLOADED_STATE:
        for limit in (None, least - planner.other_bytes, 0):
            plan = planner.plan_with_offloads(least, kinds, 1e9, "mixed", copy_limit_bytes=limit)
            if plan is not None:
                assert evaluator.live_bytes(plan) <= least
                compile([net], strategy=plan, costs=costs)


def test_hints_keep_a_layer_and_recompute_a_layer(tmp_path):
    job = solver_job("chain", tmp_path)
    again = {op for op in ask("nested", job, 0)[2].order if ask("nested", job, 0)[2].order.count(op) > 1}
    assert len(again) > 1
    for op in again:
        layers = tuple(op.rsplit(".", 1)[0].split("+"))
        assert ask("nested", job, 0, Hints(keep=layers))[2].order.count(op) == 1
        assert ask("nested", job, 0, Hints(recompute=layers))[2].order.count(op) > 1


@pytest.mark.samples(4)
@pytest.mark.parametrize("net", ["digits", "alexnet", "resnet20", "googlenet", "squeezenet10"])
def test_lower_sets_that_are_left_out_have_no_smaller_plan(net):
    job = job_of(build_net(f"prototxt/{net}/train_val.prototxt", "TRAIN", batch=8), device="reference")
    planner = nested_planner(job.graphs[0], job.costs, job.arena, Hints())
    plan = planner.min_memory_plan("nested", job.arena)
    lower_sets = lower_set_plan("", "extended", planner.graph, job.costs, MINIMUM_MEMORY, job.arena, Hints())
    assert job.arena.live_bytes(plan) <= job.arena.live_bytes(lower_sets)
    assert planner.plan_within(MINIMUM_MEMORY, "nested", job.arena) is None
