"""Segments in the DOT language: each value in the box of its segment, and bold edges between segments."""

import re

import pytest

from layermem.integrations.graph_files.drawing import segments_dot
from layermem.integrations.graph_files.planner import GraphPlanner
from tests.integrations.graph_files.small_files import graph_of, random_graph


def test_a_chain_of_two_segments_has_one_bold_edge():
    graph = graph_of([(0, 1), (1, 2), (2, 3)], [1] * 4)
    values = GraphPlanner(graph).values
    ids = values.variables
    text = segments_dot(values, [ids[:2], ids])
    assert text.count("subgraph cluster_") == 2 and 'label="segment 1, 2 B"' in text
    bold = re.findall(r"v(\d+) -> v(\d+) \[style=bold\];", text)
    assert bold == [(str(ids[1]), str(ids[2]))] and text.count(" -> ") == 3


@pytest.mark.parametrize("seed", range(1, 4))
def test_every_value_and_every_edge_is_drawn_once(seed):
    planner = GraphPlanner(random_graph(seed), "exact")
    text = segments_dot(planner.values, planner.plan().chain)
    assert sorted(map(int, re.findall(r"^    v(\d+) \[", text, flags=re.M))) == sorted(planner.values.variables)
    assert text.count(" -> ") == sum(map(len, planner.values.before))
    assert text.startswith("digraph segments {") and text.count("{") == text.count("}")
