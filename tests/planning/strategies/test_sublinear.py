"""`sublinear`: the memory of about sqrt(n) layers, for at most one more forward pass (Chen et al. 2016)."""

from math import sqrt

import pytest

from layermem.graph.net import Net
from layermem.planning.hints import Hints
from layermem.planning.recomputation import recompute_seconds, seconds_again
from layermem.planning.strategies import get_strategy
from layermem.planning.sublinear_search import sublinear_candidates
from layermem.proto.read import read_net_text
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.solver.jobs import StepOptions, net_job
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
def test_sublinear_takes_the_fitting_plan_that_recomputes_least(net, tmp_path):
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


def test_sublinear_takes_the_fewest_bytes_without_a_budget():
    assert Planned("sublinear", chain(36)).plan == Planned("sublinear", chain(36), 0).plan


STEP = """
layer {{ name: "sum{0}" type: "InnerProduct" bottom: "h{1}" top: "sum{0}" inner_product_param {{ num_output: 8 }} }}
layer {{ name: "gate{0}" type: "Sigmoid" bottom: "sum{0}" top: "gate{0}" }}
layer {{ name: "c{0}" type: "Eltwise" bottom: "gate{0}" bottom: "c{1}" top: "c{0}"
        eltwise_param {{ operation: PROD }} }}
layer {{ name: "h{0}" type: "TanH" bottom: "c{0}" top: "h{0}" }}
"""
CELLS = (
    'layer { name: "in" type: "Input" top: "h0" top: "c0" input_param { shape { dim: [4, 8] } } }'
    + "".join(STEP.format(i, i - 1) for i in range(1, 13))
    + 'layer { name: "l" type: "EuclideanLoss" bottom: "h12" bottom: "c0" top: "l" }'
)


def test_all_blobs_that_cross_the_end_of_a_segment_are_kept_together():
    """The c and the h of a step, of which one hint names the last."""
    job = net_job(Net(read_net_text(CELLS), 0), StepOptions(device="reference"))
    (graph,), costs, hints = job.graphs, job.costs, Hints(segment_ends=("h*",))
    plans = [each.plan for each in sublinear_candidates(graph, costs, ArenaPlanner([graph], costs), hints)]
    cut = [plan for plan in plans if len(plan.order) > len(set(plan.order))]
    assert cut
    for plan in cut:
        again = {name for name in plan.order if plan.order.count(name) > 1}
        for i in range(1, 13):
            if f"h{i}.forward" not in again:
                assert f"c{i}.forward" not in again
