"""Chen et al.'s segments on graph files: by hand on a chain, never below the bound, and schedules that run."""

import pytest

from layermem.errors import InputError
from layermem.integrations.graph_files.planner import GraphPlanner
from layermem.integrations.graph_files.schedule_text import run_schedule
from tests.integrations.graph_files.small_files import graph_of, random_graph

LONG = graph_of([(i, i + 1) for i in range(15)], [1] * 16)


def test_a_chain_of_sixteen_keeps_about_a_value_in_four():
    plan = GraphPlanner(LONG, "sublinear", reads="inputs").plan()
    ends = [len(lower) for lower in plan.chain]
    assert ends[-1] == 16 and 3 <= len(ends) <= 5
    assert plan.peak_bytes < 16 and plan.cost_recomputed == 16 - sum(16 - ends[-2] if end == 16 else 1 for end in ends)


@pytest.mark.parametrize("reads", ["file", "inputs"])
def test_schedules_run_in_the_bytes_and_for_the_costs_that_are_stated(reads):
    for seed in range(1, 16):
        graph = random_graph(seed)
        planner = GraphPlanner(graph, "sublinear", reads=reads)
        least = planner.plan()
        for budget_bytes in (least.budget_bytes, planner.values.total_bytes):
            plan = planner.plan(budget_bytes)
            assert plan.feasible and plan.cost_bound <= plan.cost_recomputed
            peak_bytes, cost = run_schedule(graph, plan.schedule, reads)
            assert peak_bytes <= plan.peak_bytes <= budget_bytes and cost == plan.cost_forward + plan.cost_recomputed
        assert not planner.plan(least.budget_bytes - 1).feasible
        assert GraphPlanner(graph, "exact", reads=reads).plan().minimum_bytes <= least.minimum_bytes


def test_what_is_of_lower_sets_is_refused():
    with pytest.raises(InputError, match="is a formula for lower sets; use model 'live' with family 'sublinear'"):
        GraphPlanner(LONG, "sublinear", "paper")
    with pytest.raises(InputError, match="use objective 'time' with family 'sublinear'"):
        GraphPlanner(LONG, "sublinear").plan(objective="M")
