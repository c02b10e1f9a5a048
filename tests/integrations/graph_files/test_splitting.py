"""Residencies split in the order of a graph: every sequence runs within its budget."""

import pytest

from layermem.integrations.graph_files.node_link import parse_node_link, run_sequence
from layermem.integrations.graph_files.splitting import split_order
from tests.integrations.graph_files.node_links import chain, graph_text, random_graph


@pytest.mark.parametrize("share", [70, 85, 100])
def test_every_sequence_runs_within_its_budget(share):
    split = 0
    for seed in range(6):
        graph = random_graph(seed, 40)
        budget_bytes = graph.order_bytes * share // 100
        sequence = split_order(graph, budget_bytes)
        if sequence is not None:
            assert run_sequence(graph, sequence)[0] <= budget_bytes
            split += 1
    assert split == 6 or share < 100
    assert split_order(graph, graph.order_bytes) == list(graph.order)


def test_the_output_with_the_most_bytes_per_cost_is_dropped_where_memory_is_full():
    """Nodes 0 and 1 are read at the end; one of them has to be dropped at node 3."""
    graph = parse_node_link(graph_text([5, 5, 1, 6, 1], [9, 2, 1, 1, 1], [(2, 3), (0, 4), (1, 4), (3, 4)]))
    assert graph.order_bytes == 17
    assert split_order(graph, 13) is None  # the last node needs all outputs but node 2's
    graph = parse_node_link(
        graph_text([5, 5, 1, 6, 1, 1], [9, 2, 1, 1, 1, 1], [(2, 3), (3, 4), (0, 5), (1, 5), (4, 5)])
    )
    assert split_order(graph, 13) == [0, 2, 3, 4, 1, 5]


@pytest.mark.parametrize(
    ("size", "budget_bytes", "sequence"), [(1, 12, [0, 1, 2, 3, 4, 1, 5]), (7, 17, [0, 1, 2, 3, 4, 0, 1, 5])]
)
def test_an_input_that_is_gone_stays_where_there_is_memory_and_else_runs_again(size, budget_bytes, sequence):
    """Node 1 reads node 0, and is dropped while nodes 3 and 4 run."""
    graph = parse_node_link(graph_text([size, 9, 1, 10, 1, 1], [1] * 6, [(0, 1), (1, 2), (3, 4), (1, 5), (4, 5)]))
    assert graph.order_bytes == 20 and split_order(graph, budget_bytes) == sequence


def test_a_chain_is_trained_in_half_of_its_peak():
    graph = chain(16)
    sequence = split_order(graph, graph.order_bytes // 2)
    assert sequence is not None and run_sequence(graph, sequence)[1] < 1.4 * graph.total_cost
    assert split_order(graph, graph.least_bytes - 1) is None
