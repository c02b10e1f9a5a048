"""Node-link JSON: read in the forms of Checkmate and Moccasin, run as a check, refused where it is no graph."""

import json

import pytest

from layermem.errors import InputError
from layermem.integrations.graph_files.node_link import parse_node_link, run_sequence, sequence_text
from tests.integrations.graph_files.node_links import chain, graph_text


def test_both_forms_of_the_authors_are_read():
    graph = chain(4)
    random = {
        "graph": {"name": "r", "order": [1, 0]},
        "nodes": [{"out_cost": 5, "duration": 2, "param_cost": 0, "name": 0}, {"out_cost": 7, "duration": 0}],
        "links": [{"0": 1, "1": 0}],
    }
    assert graph.reads[:3] == ((), (0,), (1,)) and graph.order == tuple(range(8))
    found = parse_node_link(json.dumps(random))
    assert (found.bytes, found.cost, found.reads, found.order) == ((5, 7), (2, 0), ((1,), ()), (1, 0))


def test_an_output_is_in_memory_until_the_last_run_that_reads_it():
    graph = parse_node_link(graph_text((4, 3, 2, 1), (1, 1, 5, 1), ((0, 1), (1, 2), (0, 3), (2, 3))))
    assert run_sequence(graph, [0, 1, 2, 3]) == (9, 8) and graph.order_bytes == 9
    assert run_sequence(graph, [0, 1, 2, 0, 3]) == (7, 9) and graph.least_bytes == 7
    text = "compute 0\ncompute 1\nforget 0\ncompute 2\nforget 1\ncompute 0\ncompute 3\nforget 0\nforget 2\nforget 3\n"
    assert sequence_text(graph, [0, 1, 2, 0, 3]) == text


def test_costs_may_be_floating_point_operations():
    """Node conv2d_5_backward of Checkmate's fcn_8_vgg."""
    assert parse_node_link(graph_text([129499136], [1624437161984], ())).total_cost == 1624437161984


NODE = '{"cost_ram": 1, "cost_cpu": 1}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not a graph"),
        ('{"nodes": [], "links": []}', "it has no nodes"),
        ('{"nodes": [{"cost_ram": -1, "cost_cpu": 1}], "links": []}', "cost_ram or out_cost is -1"),
        ('{"nodes": [{"cost_ram": 1}], "links": []}', "cost_cpu or duration is None"),
        (f'{{"nodes": [{NODE}], "links": [{{"source": 0, "target": 9}}]}}', "target or 1 is 9"),
        (f'{{"nodes": [{NODE}], "links": [{{"source": 0, "target": 0}}]}}', "not in an order in which they can run"),
        (f'{{"graph": {{"order": [1]}}, "nodes": [{NODE}], "links": []}}', "does not name every node once"),
        (graph_text([2**59, 2**59], [1, 1], ()), "its outputs take more than 1,048,576 TiB, which no machine has"),
        (
            f'{{"graph": {{"order": [1, 0]}}, "nodes": [{NODE}, {NODE}], "links": [{{"source": 0, "target": 1}}]}}',
            "node 1 reads node 0, which has not run",
        ),
    ],
)
def test_text_that_is_no_graph_is_refused_with_a_remedy(text, says):
    with pytest.raises(InputError) as error:
        parse_node_link(text, "g.json")
    assert str(error.value).startswith("g.json: is not a graph (") and says in str(error.value)
    assert "give node-link JSON as networkx writes it" in str(error.value)
