"""tools/prove_recomputation.py: every sequence within a budget satisfies the rows, at no less than its cost."""

import random
from dataclasses import replace

import pytest

from layermem.integrations.graph_files.node_link import last_reads, run_sequence
from layermem.integrations.graph_files.node_order import plan_order
from tests.integrations.graph_files.node_links import chain, random_graph
from tools.prove_recomputation import relaxation


def variables_of(program, graph, sequence, budget_bytes):
    """What a sequence makes of the variables, from the first principles of `run_sequence`."""
    until, seen, stage, stages = last_reads(graph, sequence), set(), 0, []
    for node in sequence:
        stages.append(stage)
        if stage < len(program.path) and node == program.path[stage]:
            stage += 1
    first = [stages.index(t) if t in stages else len(stages) for t in range(len(program.path) + 2)]
    values = [0.0] * len(program.cost)
    for position, node in enumerate(sequence):
        if (stages[position], node) not in program.runs:
            return None  # it costs more than what is spared
        values[program.runs[stages[position], node]] = 1
        seen.add((stages[position], node))
        for t in range(stages[position] + 1, len(program.path) + 1):
            if until[position] >= first[t]:
                values[program.kept[t, node]] = 1
    for (t, node), each in program.held.items():
        later = program.kept.get((t + 1, node))
        values[each] = float(later is not None and values[later] and (t, node) not in seen)
        values[program.live[t]] += values[each] * graph.bytes[node] / budget_bytes
    return values


def holds(program, values):
    return all(sum(factor * values[each] for factor, each in terms) >= least - 1e-6 for least, terms in program.rows)


def in_another_order(graph, draw):
    order = []
    while len(order) < len(graph.order):
        order.append(draw.choice([v for v in graph.order if v not in order and {*graph.reads[v]} <= {*order}]))
    return replace(graph, order=tuple(order))


def wasteful_sequence(graph, draw):
    """Nodes in a possible order, after some of which others run again."""
    sequence = []
    for node in graph.order:
        sequence += [*(draw.choices(sequence, k=1) if sequence and draw.random() < 0.4 else []), node]
    return [node for at, node in enumerate(sequence) if all(read in sequence[:at] for read in graph.reads[node])]


@pytest.mark.parametrize("stages", [100, 3])
@pytest.mark.parametrize("seed", range(6))
def test_every_sequence_within_a_budget_satisfies_the_rows(seed, stages):
    draw = random.Random(seed)
    graph = in_another_order(random_graph(seed, 14), draw)
    planned = [plan_order(graph, graph.order_bytes * share // 100) for share in (60, 75, 90)]
    for sequence in [*filter(None, planned), *(wasteful_sequence(graph, draw) for _ in range(4))]:
        peak_bytes, cost = run_sequence(graph, sequence)
        program = relaxation(graph, peak_bytes, cost - graph.total_cost, stages)
        values = variables_of(program, graph, sequence, peak_bytes)
        assert values is not None and holds(program, values)
        assert sum(cost * value for cost, value in zip(program.cost, values)) <= cost


def test_a_sequence_over_the_budget_violates_them_where_the_order_is_forced():
    """The nodes of a chain run in one order, and the last run of a stage reads what is kept."""
    graph = chain(8)
    sequence = list(graph.order)
    budget_bytes = graph.order_bytes - 1
    program = relaxation(graph, budget_bytes, graph.total_cost)
    assert not holds(program, variables_of(program, graph, sequence, budget_bytes))
    fitting = plan_order(graph, budget_bytes)
    assert holds(program, variables_of(program, graph, fitting, budget_bytes))
