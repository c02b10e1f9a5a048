"""Plans of node-link graphs: every sequence runs within its budget, and none is below the optimum."""

import json
from heapq import heappop, heappush
from itertools import count

import pytest

from layermem.integrations.graph_files.node_link import parse_node_link, run_sequence
from layermem.integrations.graph_files.node_order import plan_order
from layermem.integrations.graph_files.splitting import split_order
from tests.integrations.graph_files.node_links import chain, random_graph


def least_cost(graph, budget_bytes):
    """The least cost of any sequence, by Dijkstra over what has run and what is in memory; None if none fits."""
    tie, seen, every = count(), set(), frozenset(range(len(graph.bytes)))
    heap = [(0, next(tie), frozenset(), frozenset())]
    while heap:
        cost, _, done, live = heappop(heap)
        if done == every:
            return cost
        if (done, live) in seen:
            continue
        seen.add((done, live))
        for v in live:
            heappush(heap, (cost, next(tie), done, live - {v}))
        for v in every - live:
            more = live | {v}
            if live.issuperset(graph.reads[v]) and sum(graph.bytes[u] for u in more) <= budget_bytes:
                heappush(heap, (cost + graph.cost[v], next(tie), done | {v}, more))
    return None


@pytest.mark.parametrize("share", [60, 70, 85, 100])
def test_every_sequence_runs_within_its_budget_and_costs_no_more_than_splitting(share):
    planned = 0
    for seed in range(3):
        graph = random_graph(seed, 40)
        budget_bytes = graph.order_bytes * share // 100
        sequence, split = plan_order(graph, budget_bytes), split_order(graph, budget_bytes)
        if sequence is not None:
            peak_bytes, cost = run_sequence(graph, sequence)
            assert peak_bytes <= budget_bytes
            assert split is None or cost <= run_sequence(graph, split)[1]
            planned += 1
        assert split is None or sequence is not None
    assert planned == 3 or share < 100
    assert plan_order(graph, graph.order_bytes) == list(graph.order)


def test_no_sequence_is_below_the_optimum_and_most_small_ones_equal_it():
    equal = planned = 0
    for seed in range(12):
        graph = random_graph(seed, 7)
        budget_bytes = max(graph.least_bytes, graph.order_bytes * 90 // 100)
        best, sequence = least_cost(graph, budget_bytes), plan_order(graph, budget_bytes)
        assert sequence is None or best is not None
        if sequence is not None:
            cost = run_sequence(graph, sequence)[1]
            assert cost >= best
            planned, equal = planned + 1, equal + (cost == best)
    assert planned >= 8 and equal >= planned // 2


def test_nodes_change_places_before_one_runs_again():
    """Two chains that begin with large values: one after the other needs half of the bytes of both side by side."""
    nodes = [{"cost_ram": nbytes, "cost_cpu": 9} for nbytes in (80, 80, 10, 10, 1)]
    links = [{"source": a, "target": b} for a, b in ((0, 2), (1, 3), (2, 4), (3, 4))]
    graph = parse_node_link(json.dumps({"nodes": nodes, "links": links, "graph": {"order": [0, 1, 2, 3, 4]}}))
    assert graph.order_bytes == 170
    assert sorted(plan_order(graph, 100)) == [0, 1, 2, 3, 4]
    assert plan_order(graph, 99) is None


def test_a_plan_is_the_same_each_time():
    graph = random_graph(3, 60)
    budget_bytes = graph.order_bytes * 80 // 100
    assert plan_order(graph, budget_bytes) == plan_order(graph, budget_bytes)


def test_below_what_the_largest_run_needs_there_is_none():
    graph = chain(16)
    assert plan_order(graph, graph.least_bytes - 1) is None
