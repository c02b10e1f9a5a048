"""Schedules of graph files: runs confirm the peak and cost of their plan, and invalid ones are detected."""

import random

import pytest

from layermem.errors import InputError
from layermem.integrations.graph_files.planner import GraphPlanner
from layermem.integrations.graph_files.schedule_text import missing_reads, run_schedule
from layermem.integrations.graph_files.text_format import FileFunction, GraphFile, Variable, parse_graph
from tests.integrations.graph_files.small_files import CHAIN, graph_of, random_graph


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
            peak, cost = run_schedule(graph, plan.schedule)
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
        assert run_schedule(graph, plan.schedule)[0] == plan.peak_bytes


def test_a_schedule_that_reads_what_is_gone_is_caught_with_its_line():
    graph = parse_graph(CHAIN)
    text = GraphPlanner(graph).plan(600).schedule
    lines = text.splitlines()
    assert run_schedule(graph, text)[1] == 12
    with pytest.raises(InputError, match="data of variable 0, which is not there") as caught:
        run_schedule(graph, "\n".join([lines[0], "forget 0 forward", *lines[1:]]))
    assert caught.value.line == 3
    with pytest.raises(InputError, match="no data of variable 2 to forget"):
        run_schedule(graph, "forget 2 forward\n")
    with pytest.raises(InputError, match="gradient of variable"):
        run_schedule(graph, "\n".join(line for line in lines if line != "compute 4 0"))
    twice = [line for line in lines for _ in range(1 + (line == "compute 4 0"))]
    with pytest.raises(InputError, match="already added"):
        run_schedule(graph, "\n".join(twice))
    with pytest.raises(InputError, match="neither"):
        run_schedule(graph, "rest 1\n")


def graph_with_reads(seed):
    """A random graph whose backwards read some of the inputs and outputs of their functions."""
    draw = random.Random(seed)
    graph = random_graph(seed)
    backward = []
    for function, forward in zip(graph.backward, graph.forward):
        inputs = [(v, "input") for v, _ in forward.reads if draw.random() < 0.5]
        outputs = [(v, "output") for v in forward.writes if draw.random() < 0.5]
        gradients = tuple((v, "gradient") for v in forward.writes)
        backward.append(FileFunction("backward", function.kind, (*gradients, *inputs, *outputs), function.writes))
    return GraphFile(graph.variables, graph.forward, tuple(backward))


def test_every_schedule_has_what_the_file_says_that_a_backward_reads():
    for seed in range(60):
        graph = graph_with_reads(seed)
        planner = GraphPlanner(graph, "exact")
        least = planner.plan()
        for budget in (least.budget_bytes, (least.budget_bytes + planner.values.total_bytes) // 2):
            plan = planner.plan(budget)
            peak, cost = run_schedule(graph, plan.schedule)
            assert plan.feasible and peak <= plan.peak_bytes <= budget, seed
            assert cost == plan.cost_forward + plan.cost_recomputed, seed
            assert plan.reads == "file" and missing_reads(graph, plan.schedule) == 0


def test_schedules_by_the_paper_s_assumption_drop_outputs_that_the_file_says_are_read():
    graph = parse_graph(CHAIN)
    for model in ("live", "paper"):
        plan = GraphPlanner(graph, model=model, reads="inputs").plan()
        assert plan.reads == "inputs" and run_schedule(graph, plan.schedule, "inputs")[0] == plan.peak_bytes
        assert missing_reads(graph, plan.schedule) > 0
        with pytest.raises(InputError, match="which is not there"):
            run_schedule(graph, plan.schedule)


def test_a_value_that_gets_no_gradient_needs_none():
    """The second of two outputs is read by a function whose backward adds only to the gradient of the first."""
    forward = (
        FileFunction("forward", "Pool", ((0, "_"),), (1, 2)),
        FileFunction("forward", "Up", ((1, "_"), (2, "_")), (3,)),
    )
    backward = (
        FileFunction("backward", "Pool", ((1, "gradient"),), (0,)),
        FileFunction("backward", "Up", ((3, "gradient"), (2, "input")), (1,)),
    )
    graph = GraphFile((Variable(4, "/w"), *(Variable(8, "_") for _ in range(3))), forward, backward)
    plan = GraphPlanner(graph).plan()
    assert run_schedule(graph, plan.schedule)[0] <= plan.peak_bytes
    with pytest.raises(InputError, match="reads the gradient of variable 1, which is not there"):
        run_schedule(graph, "compute 0\ncompute 1\ncompute 2\n")
