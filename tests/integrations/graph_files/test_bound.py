"""The lower bound of recomputation of a graph file within a budget."""

from layermem.integrations.graph_files.bound import least_recomputed
from layermem.integrations.graph_files.value_graph import ValueGraph
from tests.integrations.graph_files.small_files import graph_of, random_graph

CHAIN = graph_of([(0, 1), (1, 2), (2, 3)], [1] * 4)


def test_the_bound_of_a_chain_by_hand():
    """During the formation of dc, c and de are in memory; a and b are there too, or one of them, or both, are
    recomputed."""
    values = ValueGraph(CHAIN, "inputs")
    assert [least_recomputed(values, nbytes) for nbytes in (5, 4, 3)] == [0, 1, 2]


def test_the_bound_falls_to_nothing_as_the_budget_grows():
    for seed in range(1, 9):
        values = ValueGraph(random_graph(seed), "file")
        budgets = range(0, values.total_bytes + 1, max(1, values.total_bytes // 8))
        bounds = [least_recomputed(values, nbytes) for nbytes in budgets]
        assert bounds == sorted(bounds, reverse=True)
        assert least_recomputed(values, values.total_bytes) == 0
