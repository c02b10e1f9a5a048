"""Plans of graph files: with known cost on a chain, within any budget, and refused below the smallest."""

from dataclasses import replace

import pytest

from layermem.errors import InputError
from layermem.integrations.graph_files.planner import GraphPlanner
from layermem.integrations.graph_files.schedule_text import run_schedule
from layermem.integrations.graph_files.text_format import parse_graph
from tests.integrations.graph_files.small_files import CHAIN, graph_of


def test_a_budget_for_everything_recomputes_nothing():
    plan = GraphPlanner(parse_graph(CHAIN)).plan(600)
    assert plan.feasible and plan.proven_optimal
    assert (plan.cost_forward, plan.cost_recomputed) == (12, 0)


@pytest.mark.parametrize(
    ("objective", "chain", "recomputed"),
    [("T", ((0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)), 1), ("M", ((0, 1), (0, 1, 2, 3)), 12)],
)
def test_a_chain_of_four_is_planned_as_by_hand(objective, chain, recomputed):
    """a b c d of 100 bytes; a costs 10, the others 1.  By the paper's formula, M(U) + 2 M(V_i) + the next gradient:

    a|b|c|d   M_3 = 200 + 200 + 100,  M_4 = 300 + 200     500, d runs again: 1
    ab|cd     M_1 = 0 + 400 + 100,    M_2 = 100 + 400     500, all but b run again: 12
    ab|c|d    M_1 = 500, M_2 = 100 + 200 + 100            500, a and d run again: 11
    a|b|cd 600, a|bc|d 600, a|bcd 700, abc|d 700, abcd 800
    """
    planner = GraphPlanner(graph_of([(0, 1), (1, 2), (2, 3)], [100] * 4, convolutions={0}), "exact", "paper")
    plan = planner.plan(None, objective)
    assert plan.chain == chain and plan.cost_forward == 13 and plan.cost_recomputed == recomputed
    assert plan.budget_bytes == plan.minimum_bytes == plan.peak_formula_bytes == 500
    assert plan.minimum_proven and plan.proven_optimal and plan.lower_sets == 5
    refused = planner.plan(499, objective)
    assert not refused.feasible and refused.proven_optimal and refused.schedule == ""


@pytest.mark.parametrize("family", ["exact", "nested"])
def test_recomputation_follows_the_seconds_of_the_file(family):
    """a b c d within four values: a or b runs again, whichever is quicker; by the authors' costs, not a convolution."""
    graph = graph_of([(0, 1), (1, 2), (2, 3)], [100] * 4, convolutions={0})
    for a, b, again in ((9e-6, 1e-6, 1000), (2e-6, 9e-6, 2000)):
        seconds = (a, b, 20e-6, 30e-6)
        forward = [replace(f, attributes={"seconds": seconds[f.writes[0]]}) for f in graph.forward]
        timed = replace(graph, forward=tuple(forward))
        plan = GraphPlanner(timed, family).plan(400)
        assert (plan.cost_unit, plan.cost_forward, plan.cost_recomputed) == ("ns", round(1e9 * sum(seconds)), again)
        assert run_schedule(timed, plan.schedule)[1] == plan.cost_forward + again
        plan = GraphPlanner(timed, family, op_costs="authors").plan(400)
        assert (plan.cost_unit, plan.cost_forward, plan.cost_recomputed) == ("authors", 13, 1)
        assert run_schedule(timed, plan.schedule, op_costs="authors")[1] == 14


def test_the_paper_s_formula_is_for_its_own_assumption():
    assert GraphPlanner(parse_graph(CHAIN), model="paper").plan().reads == "inputs"
    with pytest.raises(InputError, match="model 'paper' is a formula for reads 'inputs'"):
        GraphPlanner(parse_graph(CHAIN), model="paper", reads="file")
    with pytest.raises(InputError, match="unknown reads 'all'"):
        GraphPlanner(parse_graph(CHAIN), reads="all")
