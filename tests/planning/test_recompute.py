"""`recompute`, `recompute-exact` and `recompute-approx`, beside `sublinear` and under hints."""

import pytest

from layermem.compiler import compile
from layermem.planning import lower_sets
from layermem.planning.hints import Hints
from layermem.planning.lower_sets import LowerSetPlanner, group_ops
from layermem.planning.recomputation import forward_ops, matches, recompute_seconds, segments_to_plan
from layermem.planning.strategies import get_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from tests.planning.jobs import random_job, solver_job

FAMILIES = ("recompute", "recompute-exact", "recompute-approx")


def ask(name, job, budget, hints=Hints(), arena_planner=None):
    graphs, costs = job
    arena_planner = arena_planner or ArenaPlanner(graphs, costs)
    plan = get_strategy(name).make(graphs[0], costs, budget, arena_planner, hints)
    return arena_planner.live_bytes(plan), recompute_seconds(graphs[0], costs, plan), plan


@pytest.fixture(params=["nodes", "groups"])
def nodes_or_groups(request, monkeypatch):
    """Short nets are planned op by op, long ones in groups of ops: here as if 5 ops were long."""
    if request.param == "groups":
        monkeypatch.setattr(lower_sets, "MAX_NODES", 4)
        monkeypatch.setattr(lower_sets, "GROUPS", 3)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("net", ["chain", "residual", "inception", *range(6)])
def test_recompute_is_never_less_lean_nor_slower_than_sublinear(name, net, nodes_or_groups, tmp_path):
    job = random_job(net) if isinstance(net, int) else solver_job(net, tmp_path)
    arena_planner = ArenaPlanner(*job)
    least = ask("sublinear", job, 0, arena_planner=arena_planner)[0]
    most = ask(name, job, 10**9, arena_planner=arena_planner)[0]
    assert ask(name, job, 0, arena_planner=arena_planner)[0] <= least
    for budget in {least, (least + most) // 2, (least + 3 * most) // 4}:
        live, again, _ = ask(name, job, budget, arena_planner=arena_planner)
        assert live <= budget and again <= ask("sublinear", job, budget, arena_planner=arena_planner)[1]


def test_what_backward_alone_reads_stays_beside_an_output_that_stays(tmp_path):
    """pool1 ends a segment, so its output stays, and with it which element of each window was the largest."""
    graph = solver_job("chain", tmp_path)[0][0]
    ops = forward_ops(graph)
    end = 1 + next(i for i, op in enumerate(ops) if op.name == "pool1.forward")
    beside, apart = (
        segments_to_plan(graph, [ops[:end], ops[end:]], "cut", keep_side_outputs=b).order for b in (True, False)
    )
    assert beside.count("pool1.forward") == 1 and apart.count("pool1.forward") == 2
    assert set(beside) == set(apart) and beside.count("conv1.forward") <= apart.count("conv1.forward")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_to_keep_never_runs_again_and_one_to_recompute_is_not_kept(name, tmp_path):
    job = solver_job("chain", tmp_path)
    graph = job[0][0]
    minimum = ask(name, job, 0)[2].order
    recompute = {op for op in minimum if minimum.count(op) > 1}
    assert len(recompute) > 1
    for op in recompute:
        layers = tuple(op.rsplit(".", 1)[0].split("+"))
        assert ask(name, job, 0, Hints(keep=layers))[2].order.count(op) == 1
    forced = [ask(name, job, 10**9, Hints(recompute=(op.split(".")[0],)))[2].order.count(op) for op in recompute]
    assert 2 in forced and ask(name, job, 10**9)[2].order == tuple(op.name for op in graph.ops)


@pytest.mark.parametrize("family", ["approx", "extended", "exact"])
@pytest.mark.parametrize("net", ["chain", "residual", "inception"])
def test_segments_end_at_segment_ends_only(family, net, nodes_or_groups, tmp_path):
    (graph, *_), costs = solver_job(net, tmp_path)
    free = LowerSetPlanner(graph, costs, family, Hints())
    hints = Hints(segment_ends=("conv*", "*relu*"))
    planner = LowerSetPlanner(graph, costs, family, hints)
    ends = {node for node, run in enumerate(planner.groups) if matches(run[-1], hints.segment_ends)}
    sets = [frozenset(s) for s in planner.native.sets()]
    reads = [{graph.producer[b].name for op in run for b in op.reads if b in graph.producer} for run in planner.groups]
    makes = [{op.name for op in run} for run in planner.groups]
    for members in sets[:-1]:
        last = {v for v in members if not any(reads[w] & makes[v] for w in members if w != v)}
        assert last <= ends, members
    assert 1 < len(sets) <= len(free.native.sets())


def test_without_a_segment_end_there_is_one_segment(tmp_path):
    job = solver_job("chain", tmp_path)
    assert len(LowerSetPlanner(job[0][0], job[1], "exact", Hints(segment_ends=("nothing",))).native.sets()) == 2


def test_groups_of_a_long_net_end_where_segments_may(monkeypatch, tmp_path):
    monkeypatch.setattr(lower_sets, "MAX_NODES", 4)
    graph = solver_job("residual", tmp_path)[0][0]
    hints = Hints(segment_ends=("*relu*",))
    groups, free = group_ops(graph, hints), group_ops(graph)
    assert [op for group in groups for op in group] == [op for group in free for op in group]
    assert 1 < len(groups) < len(free) and all(matches(group[-1], hints.segment_ends) for group in groups[:-1])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_program_under_stage_hints_keeps_its_budget(name, tmp_path):
    graphs, costs = solver_job("residual", tmp_path)
    hints = Hints(segment_ends=("*relu*",))
    least, most = (
        compile(graphs, strategy=name, costs=costs, hints=hints, budget_bytes=b).arena_bytes for b in (None, 10**9)
    )
    budget = (least + most) // 2
    assert least < most
    program = compile(graphs, strategy=name, costs=costs, hints=hints, budget_bytes=budget)
    assert program.arena_bytes <= budget
