"""`recompute`, `recompute-exact` and `recompute-approx`, beside `sublinear` and under hints."""

from itertools import combinations, pairwise

import pytest

from layermem.planning import lower_sets
from layermem.planning.hints import Hints
from layermem.planning.recomputation import forward_ops, recompute_seconds, seconds_again, segments_to_plan
from layermem.planning.strategies import get_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from tests.compiling import compile
from tests.planning.chains import UNIT, Planned, a_second_each, chain
from tests.planning.jobs import random_job, solver_job
from tests.planning.settings import change

FAMILIES = ("recompute", "recompute-exact", "recompute-approx")


def ask(name, job, budget, hints=Hints(), arena_planner=None):
    graphs, costs = job
    arena_planner = arena_planner or ArenaPlanner(graphs, costs)
    plan = get_strategy(name).make(graphs[0], costs, budget, arena_planner, hints)
    return arena_planner.live_bytes(plan), recompute_seconds(plan, seconds_again(graphs[0], costs)), plan


def least_repeats(layers):
    """Budget in units -> the fewest ops that any cut of a chain into segments runs again within it."""
    net = chain(layers)
    ops, evaluator = forward_ops(net), ArenaPlanner([net], a_second_each(net))
    found: dict[int, int] = {}
    for count in range(layers):
        for ends in combinations(range(2, layers + 1), count):
            segments = [ops[a:b] for a, b in zip((0, *ends), (*ends, layers + 1))]
            plan = segments_to_plan(net, segments, "")
            units, repeats = evaluator.live_bytes(plan) // UNIT, len(plan.order) - len(net.ops)
            for budget in range(units, layers + 3):
                found[budget] = min(repeats, found.get(budget, layers))
    return found


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("layers", [3, 5, 8])
def test_of_a_chain_no_cut_recomputes_less_within_the_same_budget(name, layers):
    least = least_repeats(layers)
    for budget, repeats in least.items():
        planned = Planned(name, chain(layers), budget)
        assert (planned.units <= budget, len(planned.repeated)) == (True, repeats), budget
    assert Planned(name, chain(layers), 0).units == min(least)


def test_a_chain_of_eight_by_hand():
    """Ten units keep everything.  With up to three fewer, one segment runs again, of an op a unit.  With six, two do:
    x3 and x6 are kept, and f1 f2 and f4 f5 run again."""
    assert least_repeats(8) == {10: 0, 9: 1, 8: 2, 7: 3, 6: 4}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("net", ["chain", "residual", "inception", *range(6)])
def test_recompute_is_never_less_lean_nor_slower_than_sublinear(name, net, nodes_or_groups, tmp_path):
    job = random_job(net) if isinstance(net, int) else solver_job(net, tmp_path)
    arena_planner = ArenaPlanner(*job)
    least = ask("sublinear", job, 0, arena_planner=arena_planner)[0]
    most = ask(name, job, 10**9, arena_planner=arena_planner)[0]
    assert ask(name, job, 0, arena_planner=arena_planner)[0] <= least
    for budget in {least, (least + most) // 2, (least + 3 * most) // 4}:
        live, recomputed, _ = ask(name, job, budget, arena_planner=arena_planner)
        assert live <= budget and recomputed <= ask("sublinear", job, budget, arena_planner=arena_planner)[1]


@pytest.mark.parametrize(("smaller", "name"), [*pairwise(("recompute-approx", "recompute", "recompute-exact"))])
@pytest.mark.parametrize("net", ["residual", "inception", *range(6)])
def test_a_larger_family_is_never_less_lean_nor_slower_than_a_smaller_one(smaller, name, net, tmp_path):
    job = random_job(net) if isinstance(net, int) else solver_job(net, tmp_path)
    arena_planner = ArenaPlanner(*job)
    least = ask(smaller, job, 0, arena_planner=arena_planner)[0]
    most = ask(smaller, job, 10**9, arena_planner=arena_planner)[0]
    assert ask(name, job, 0, arena_planner=arena_planner)[0] <= least
    for budget in {least, (least + most) // 2, (least + 3 * most) // 4}:
        live, recomputed, _ = ask(name, job, budget, arena_planner=arena_planner)
        assert live <= budget and recomputed <= ask(smaller, job, budget, arena_planner=arena_planner)[1]


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


def test_the_limit_of_steps_holds_for_all_questions_together(monkeypatch):
    """One planner answers every budget; a question may take half of what the ones before it left."""

    def search(limit):
        change(monkeypatch, all_chains_step_seconds=limit)
        (graphs, costs), questions = random_job(5), []
        arena_planner = ArenaPlanner(graphs, costs)
        planner = lower_sets.lower_set_planner(graphs[0], costs, "exact", arena_planner, Hints())
        solve = planner.solve
        monkeypatch.setattr(planner, "solve", lambda *asked: questions.append(asked) or solve(*asked))
        whole = ask("liveness", (graphs, costs), None)[0]
        for share in (0.0, 0.5, 0.6, 0.7, 0.8, 0.9):
            ask("recompute-exact", (graphs, costs), int(whole * share), arena_planner=arena_planner)
        return planner.native.searched_step_seconds, len(questions)

    searched, _ = search(20.0)
    limit = searched / 4
    limited, questions = search(limit)
    assert questions > 10 and limit / 2 < limited <= limit * 1.01
