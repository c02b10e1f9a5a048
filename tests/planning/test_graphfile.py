"""Graph files of Kusumoto et al.: reading, writing, plans of known cost, and schedules that run."""

import random

import pytest

from layermem.errors import InputError
from layermem.planning.graph_files.planner import GraphPlanner, ValueGraph, plan_graph
from layermem.planning.graph_files.schedule_text import replay_schedule
from layermem.planning.graph_files.text_format import (
    Function,
    GraphFile,
    Variable,
    format_graph,
    parse_graph,
    write_graph,
)

CHAIN = """\
5 6
0 100 _
1 100 _
2 100 _
3 7 0
4 9 /conv/W
forward
1 1
1 _
2
ReLU
{}
forward
2 1
3 _
4 _
0
Convolution2DFunction
{"sx": 1}
forward
1 1
0 _
1
ReLU
{}
backward
2 1
2 gradient
2 output
1
ReLU
{}
backward
3 1
0 gradient
3 input
4 input
4
Convolution2DFunction
{"sx": 1}
backward
2 1
1 gradient
1 output
0
ReLU
{}
"""


def graph_of(edges, sizes, convolutions=()):
    """A graph file of one function a value, in a scrambled order; values without inputs read a network input."""
    count = len(sizes)
    variables = [Variable(size, "_") for size in sizes] + [Variable(5, "0"), Variable(3, "/w")]
    forward, backward = [], []
    for v in random.Random(count).sample(range(count), count):
        reads = [u for u, w in edges if w == v] or [count, count + 1]
        kind = "Convolution2DFunction" if v in convolutions else "ReLU"
        forward.append(Function("forward", kind, tuple((u, "_") for u in reads), (v,)))
        needs = ((v, "gradient"), *((u, "input") for u in reads))
        backward.append(Function("backward", kind, needs, tuple(u for u in reads if u != count)))
    return GraphFile(tuple(variables), tuple(forward), tuple(backward))


def random_graph(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 9)
    edges = [(u, v) for v in range(count) for u in range(v) if draw.random() < 0.35]
    return graph_of(
        edges, [draw.randint(1, 50) for _ in range(count)], {v for v in range(count) if draw.random() < 0.3}
    )


def test_a_file_is_read_and_written_back_to_the_letter(tmp_path):
    graph = parse_graph(CHAIN)
    assert format_graph(graph) == CHAIN
    write_graph(graph, tmp_path / "g.txt")
    assert (tmp_path / "g.txt").read_text() == CHAIN
    assert [f.kind for f in graph.forward] == ["ReLU", "Convolution2DFunction", "ReLU"]
    assert graph.forward[1].cost == 10 and graph.forward[0].cost == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("5 6", "5 5", 1, "must be even"),
        ("5 6", "five 6", 1, "two numbers"),
        ("1 100 _", "2 100 _", 3, "variable 2 where 1 should stand"),
        ("3 7 0", "3 7", 5, "ID BYTES NAME"),
        ("forward\n1 1\n1 _", "sideways\n1 1\n1 _", 7, "'sideways'"),
        ("2 gradient", "2 slope", 28, "not an input"),
        ("3 _\n4 _", "3 _\n9 _", 16, "no variable 9"),
        ('{"sx": 1}\nforward', "{sx}\nforward", 19, "not JSON"),
        ("1 _\n2\nReLU", "1 _\n0\nReLU", 13, "two writers"),
        ("backward\n2 1\n2 g", "forward\n2 1\n2 g", 28, "not an input"),
    ],
)
def test_an_error_names_its_line(old, new, line, says):
    assert CHAIN.count(old) >= 1
    with pytest.raises(InputError, match=says) as caught:
        parse_graph(CHAIN.replace(old, new, 1), "g.txt")
    assert (caught.value.path, caught.value.line) == ("g.txt", line)


def test_a_file_cut_short_or_with_more_than_it_should_have_is_refused():
    with pytest.raises(InputError, match="cut short"):
        parse_graph("\n".join(CHAIN.splitlines()[:-1]))
    with pytest.raises(InputError, match="after the last"):
        parse_graph(CHAIN + "forward\n")


def test_values_that_depend_on_themselves_are_refused():
    with pytest.raises(InputError, match="depends on itself"):
        ValueGraph(graph_of([(0, 1), (1, 2), (2, 0)], [1, 1, 1]))


def test_only_values_are_planned_for_and_in_an_order_they_can_be_computed_in():
    values = ValueGraph(parse_graph(CHAIN))
    assert values.variables == [0, 1, 2] and values.costs == [10, 1, 1]
    assert values.before == [[], [0], [1]] and values.total_bytes == 600


def test_a_budget_for_everything_recomputes_nothing(tmp_path):
    write_graph(parse_graph(CHAIN), tmp_path / "g.txt")
    plan = plan_graph(tmp_path / "g.txt", 600)
    assert plan.feasible and plan.proven_optimal
    assert (plan.cost_forward, plan.cost_recomputed) == (12, 0)


@pytest.mark.parametrize(
    ("objective", "chain", "recomputed"),
    [("T", ((0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)), 1), ("M", ((0, 1), (0, 1, 2, 3)), 12)],
)
def test_a_chain_of_four_is_planned_as_by_hand(tmp_path, objective, chain, recomputed):
    """a b c d of 100 bytes; a costs 10, the others 1.  By the paper's formula, M(U) + 2 M(V_i) + the next gradient:

    a|b|c|d   M_3 = 200 + 200 + 100,  M_4 = 300 + 200     500, d runs again: 1
    ab|cd     M_1 = 0 + 400 + 100,    M_2 = 100 + 400     500, all but b run again: 12
    ab|c|d    M_1 = 500, M_2 = 100 + 200 + 100            500, a and d run again: 11
    a|b|cd 600, a|bc|d 600, a|bcd 700, abc|d 700, abcd 800
    """
    graph = graph_of([(0, 1), (1, 2), (2, 3)], [100] * 4, convolutions={0})
    write_graph(graph, tmp_path / "g.txt")
    plan = plan_graph(tmp_path / "g.txt", None, objective, "exact", "paper")
    assert plan.chain == chain and plan.cost_forward == 13 and plan.cost_recomputed == recomputed
    assert plan.budget_bytes == plan.minimum_bytes == plan.peak_formula_bytes == 500
    assert plan.minimum_proven and plan.proven_optimal and plan.lower_sets == 5
    refused = plan_graph(tmp_path / "g.txt", 499, objective, "exact", "paper")
    assert not refused.feasible and refused.proven_optimal and refused.schedule == ""


@pytest.mark.parametrize("model", ["live", "paper"])
@pytest.mark.parametrize("objective", ["T", "M"])
def test_every_schedule_runs_at_the_peak_and_cost_that_its_plan_states(model, objective):
    for seed in range(60):
        graph = random_graph(seed)
        planner = GraphPlanner(graph, "exact", model)
        least = planner.plan(None, objective)
        for budget in (least.budget_bytes, (least.budget_bytes + planner.values.total_bytes) // 2):
            plan = planner.plan(budget, objective)
            assert plan.feasible
            peak, cost = replay_schedule(graph, plan.schedule)
            assert peak <= plan.peak_bytes <= budget, seed
            assert cost == plan.cost_forward + plan.cost_recomputed, seed
            assert plan.peak_formula_bytes >= plan.peak_bytes
            assert model == "live" or plan.peak_formula_bytes <= budget


def test_a_loss_at_the_end_makes_the_replayed_peak_exactly_the_planned_one():
    for seed in range(40):
        draw = random.Random(seed)
        count = draw.randint(2, 9)
        edges = {(u, v) for v in range(count) for u in range(v) if draw.random() < 0.3}
        edges |= {(v, v + 1) for v in range(count - 1)}
        graph = graph_of(sorted(edges), [draw.randint(1, 50) for _ in range(count)])
        plan = GraphPlanner(graph).plan()
        assert replay_schedule(graph, plan.schedule)[0] == plan.peak_bytes


def test_a_schedule_that_reads_what_is_gone_is_caught_with_its_line():
    graph = parse_graph(CHAIN)
    text = GraphPlanner(graph).plan(600).schedule
    lines = text.splitlines()
    assert replay_schedule(graph, text)[1] == 12
    with pytest.raises(InputError, match="data of variable 0, which is not there") as caught:
        replay_schedule(graph, "\n".join([lines[0], "forget 0 forward", *lines[1:]]))
    assert caught.value.line == 3
    with pytest.raises(InputError, match="no data of variable 2 to forget"):
        replay_schedule(graph, "forget 2 forward\n")
    with pytest.raises(InputError, match="gradient of variable"):
        replay_schedule(graph, "\n".join(line for line in lines if line != "compute 4 0"))
    twice = [line for line in lines for _ in range(1 + (line == "compute 4 0"))]
    with pytest.raises(InputError, match="already added"):
        replay_schedule(graph, "\n".join(twice))
    with pytest.raises(InputError, match="neither"):
        replay_schedule(graph, "rest 1\n")
