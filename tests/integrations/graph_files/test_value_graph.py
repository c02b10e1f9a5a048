"""The values of a graph file: in topological order, with their edges, and the paper's formula on them."""

import random
from itertools import combinations

import pytest

from layermem.errors import InputError
from layermem.integrations.graph_files.text_format import parse_graph
from layermem.integrations.graph_files.value_graph import ValueGraph
from tests.integrations.graph_files.small_files import CHAIN, graph_of, random_graph
from tests.native.test_planning_paper_formula import PaperFormula, all_lower_sets


def test_values_that_depend_on_themselves_are_refused():
    with pytest.raises(InputError, match="depends on itself"):
        ValueGraph(graph_of([(0, 1), (1, 2), (2, 0)], [1, 1, 1]))


def test_only_values_are_planned_for_and_in_an_order_they_can_be_computed_in():
    values = ValueGraph(parse_graph(CHAIN))
    assert values.variables == [0, 1, 2] and values.costs == [10, 1, 1]
    assert values.before == [[], [0], [1]] and values.total_bytes == 600


@pytest.mark.parametrize("block", range(4))
def test_values_come_after_what_they_are_computed_from(block):
    for seed in range(50 * block, 50 * block + 50):
        values = ValueGraph(random_graph(seed))
        assert sorted(values.variables) == sorted(values.writer)
        for node, before in enumerate(values.before):
            assert all(earlier < node and node in values.after[earlier] for earlier in before)


def test_a_branch_runs_to_its_end_before_the_next_one_begins():
    """0 -> 1 -> 2 -> 5 and 0 -> 3 -> 4 -> 5: 5 reads 2 and 4, so either branch is whole."""
    order = ValueGraph(graph_of([(0, 1), (1, 2), (0, 3), (3, 4), (2, 5), (4, 5)], [1] * 6)).variables
    assert order in ([0, 1, 2, 3, 4, 5], [0, 3, 4, 1, 2, 5])


def test_the_peak_of_a_chain_is_the_papers_formula_term_by_term():
    """a b c d of 100 bytes, cut as ab|cd: 0 + 2 x 200 + 100 for the gradient of c, then 100 for b + 2 x 200."""
    values = ValueGraph(graph_of([(0, 1), (1, 2), (2, 3)], [100] * 4))
    assert values.formula_peak_bytes([(0, 1), (0, 1, 2, 3)]) == 500
    assert values.formula_peak_bytes([(0,), (0, 1), (0, 1, 2, 3)]) == 600  # 200 for a and b + 2 x 200
    assert values.formula_peak_bytes([(0, 1, 2, 3)]) == 800


@pytest.mark.parametrize("seed", range(20))
def test_the_peak_of_any_chain_is_that_of_the_formula_set_by_set(seed):
    draw = random.Random(seed)
    count = draw.randint(2, 6)
    edges = [pair for pair in combinations(range(count), 2) if draw.random() < 0.4]
    sizes = [draw.randint(1, 50) for _ in range(count)]
    values = ValueGraph(graph_of(edges, sizes))
    nodes = [(values.node[u], values.node[v]) for u, v in edges]
    sets = sorted(all_lower_sets(count, [(u, v) if u < v else (v, u) for u, v in nodes]), key=len)
    formula = PaperFormula([1] * count, values.bytes, nodes)
    for _ in range(20):
        chain, state = [frozenset()], (0, 0, frozenset())
        while chain[-1] != sets[-1]:
            chain.append(draw.choice([s for s in sets if chain[-1] < s]))
            state = formula.extend(state, chain[-2], chain[-1])
        assert values.formula_peak_bytes(chain[1:]) == state[1]
