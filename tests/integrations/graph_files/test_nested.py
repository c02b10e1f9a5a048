"""Nested plans of graph files: by hand on a chain, never worse than lower sets, and never below the bound."""

import pytest

from layermem.integrations.graph_files.planner import GraphPlanner
from layermem.integrations.graph_files.schedule_text import run_schedule
from tests.integrations.graph_files.small_files import graph_of, random_graph

CHAIN = graph_of([(0, 1), (1, 2), (2, 3)], [1] * 4)


@pytest.mark.parametrize(("budget_bytes", "recomputed"), [(5, 0), (4, 1), (3, 3)])
def test_a_chain_of_four_by_hand(budget_bytes, recomputed):
    """a b c e, a byte and a unit each.  dc is formed beside a b c de; within four bytes, a runs again for da; within
    three, a and b run again for db, then a for da."""
    plan = GraphPlanner(CHAIN, "nested", reads="inputs").plan(budget_bytes)
    assert plan.feasible and plan.cost_recomputed == recomputed
    assert run_schedule(CHAIN, plan.schedule, "inputs") == (plan.peak_bytes, 4 + recomputed)


@pytest.mark.parametrize("reads", ["file", "inputs"])
def test_nested_plans_run_and_recompute_no_more_than_lower_sets_and_no_less_than_the_bound(reads):
    for seed in range(1, 16):
        graph = random_graph(seed)
        lower, nested = (GraphPlanner(graph, family, reads=reads) for family in ("extended", "nested"))
        least = lower.plan()
        for budget_bytes in {least.budget_bytes, (least.budget_bytes + lower.values.total_bytes) // 2}:
            by_sets, plan = lower.plan(budget_bytes), nested.plan(budget_bytes)
            assert plan.feasible and plan.peak_bytes <= budget_bytes
            peak_bytes, cost = run_schedule(graph, plan.schedule, reads)
            assert peak_bytes <= plan.peak_bytes and cost == plan.cost_forward + plan.cost_recomputed
            assert plan.cost_bound == by_sets.cost_bound <= plan.cost_recomputed <= by_sets.cost_recomputed, seed
        minimum = nested.plan()
        assert minimum.peak_bytes <= minimum.budget_bytes == minimum.minimum_bytes <= least.minimum_bytes
        assert not nested.plan(minimum.budget_bytes - 1).feasible
