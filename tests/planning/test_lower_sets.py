"""A training graph as the native planner sees it: groups of ops, where segments may end, and the way back."""

import pytest

from layermem.api import build_net, job_of
from layermem.graph.ops import DATA, FORWARD
from layermem.planning.hints import Hints
from layermem.planning.lower_sets import LowerSetPlanner, group_ops
from layermem.planning.recomputation import matches
from layermem.planning.settings import SETTINGS
from layermem.schedule.arena_planner import ArenaPlanner
from tests.planning.chains import UNIT, a_second_each, chain
from tests.planning.jobs import solver_job
from tests.planning.settings import change
from tests.schedule.small_graphs import buffer, graph, op, repeatable


def planner_of(net, family="exact"):
    return LowerSetPlanner(net, a_second_each(net), family, Hints())


def names(segments):
    return " | ".join(" ".join(each.name.split(".")[0] for each in ops) for ops in segments)


def test_the_lower_sets_of_a_chain_are_its_prefixes():
    assert [list(members) for members in planner_of(chain(3)).native.sets()] == [[], [0], [0, 1], [0, 1, 2]]


def test_sets_become_the_segments_between_them_and_the_feed_goes_first():
    planner = planner_of(chain(4))
    assert names(planner.segments([(0,), (0, 1, 2), (0, 1, 2, 3)])) == "feed f1 | f2 f3 | f4"


def test_an_op_that_only_reads_goes_with_the_op_that_made_its_blob():
    """An output writes nothing, so it is no node."""
    net = chain(3)
    first, second = op("first.forward", FORWARD, "x1"), op("second.forward", FORWARD, "x2")
    planner = planner_of(graph(net.buffers.values(), [*net.ops[:4], first, second, *net.ops[4:]]))
    assert names(planner.segments([(0,), (0, 1, 2)])) == "feed f1 first | f2 f3 second"


@pytest.mark.parametrize(("budget", "recomputed"), [(7.99, 3), (8, 2), (9, 1), (10, 0)])
def test_the_chain_of_a_budget_is_solved_in_thousandths_of_a_forward_pass(budget, recomputed):
    """Eight ops of 125 units of time each."""
    found = planner_of(chain(8)).solve(int(budget * UNIT))
    assert found.recompute_time == 125 * recomputed


def test_persistent_bytes_are_no_part_of_what_a_chain_may_use():
    assert planner_of(chain(3, parameters=True)).persistent_bytes == 6 * UNIT


def test_groups_are_cut_where_the_fewest_bytes_cross(monkeypatch):
    """Ten ops; the odd ones narrow to a quarter, and each interval of two is cut at a narrow one."""
    change(monkeypatch, most_nodes=4, groups=4)
    blobs = [buffer(f"x{i}", DATA, UNIT // 4 if i % 2 else UNIT) for i in range(11)]
    ops = [op("feed.forward", FORWARD, writes="x0")]
    ops += [repeatable(op(f"f{i}.forward", FORWARD, f"x{i - 1}", f"x{i}")) for i in range(1, 11)]
    assert names(group_ops(graph(blobs, ops))) == "f1 | f2 f3 | f4 f5 | f6 f7 | f8 f9 | f10"


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
    change(monkeypatch, most_nodes=4)
    graph = solver_job("residual", tmp_path)[0][0]
    hints = Hints(segment_ends=("*relu*",))
    groups, free = group_ops(graph, hints), group_ops(graph)
    assert [op for group in groups for op in group] == [op for group in free for op in group]
    assert 1 < len(groups) < len(free) and all(matches(group[-1], hints.segment_ends) for group in groups[:-1])


@pytest.mark.parametrize("net", ["digits", "resnet20", "alexnet", "squeezenet10"])
def test_chains_that_are_left_out_near_the_minimum_have_hardly_a_smaller_plan(net):
    job = job_of(build_net(f"prototxt/{net}/train_val.prototxt", "TRAIN", batch=8), device="reference")
    planner = LowerSetPlanner(job.graphs[0], job.costs, "extended", Hints())
    least = planner.native.minimum().model_peak_bytes
    chains = (planner.solve(int(least * slack), goal) for slack in SETTINGS.slack_ratios for goal in ("time", "memory"))
    plans = [planner.plan(chain, "", keep) for chain in chains if chain is not None for keep in (True, False)]
    fewest_bytes = min(map(job.arena.live_bytes, plans))
    assert job.arena.live_bytes(planner.min_memory_plan("", job.arena)) <= SETTINGS.near_least_ratio * fewest_bytes


@pytest.mark.parametrize("net", ["digits", "resnet20", "squeezenet10"])
def test_a_planner_may_need_less_than_any_bytes_above_its_least(net):
    job = job_of(build_net(f"prototxt/{net}/train_val.prototxt", "TRAIN", batch=8), device="reference")
    planner = LowerSetPlanner(job.graphs[0], job.costs, "extended", Hints())
    least_model_ratio = planner.persistent_bytes + planner.native.minimum().model_peak_bytes
    assert not planner.may_need_less(least_model_ratio // 2, job.arena)  # before any plan is made
    least = job.arena.live_bytes(planner.min_memory_plan("", job.arena))
    assert planner.may_need_less(least + 1, job.arena) and not planner.may_need_less(least // 2, job.arena)


def test_where_a_plan_is_near_the_bound_no_other_chain_is_searched(monkeypatch):
    net = chain(8)
    planner, job = planner_of(net), ArenaPlanner([net], a_second_each(net))
    asked = []
    monkeypatch.setattr(planner, "solve", lambda budget_bytes: asked.append(budget_bytes))
    least = min(each.live_bytes for each in planner._min_memory_candidates(job))
    planner._quick_candidates(job)
    assert asked and not planner.is_near_bound(least) and least > planner.least_bytes
    change(monkeypatch, near_bound_ratio=least / planner.least_bytes)
    planner.quick_candidates, asked[:] = None, []
    planner._quick_candidates(job)
    assert not asked


def test_where_a_plan_takes_no_more_than_the_least_of_the_model_its_bytes_are_the_minimum(monkeypatch):
    net = chain(8)
    planner, job = planner_of(net), ArenaPlanner([net], a_second_each(net))
    asked = []
    monkeypatch.setattr(planner, "solve", lambda budget_bytes, goal: asked.append(budget_bytes))
    least = job.live_bytes(planner.min_memory_plan("", job))
    assert least <= planner.persistent_bytes + planner.native.minimum().model_peak_bytes and not asked


@pytest.mark.parametrize("net", ["digits", "resnet20", "siamese"])
def test_a_plan_that_recomputes_least_near_the_minimum_is_found(net):
    """A larger family's plan within a budget recomputes no more than any of the chains near the minimum that fits."""
    job = job_of(build_net(f"prototxt/{net}/train_val.prototxt", "TRAIN", batch=8), device="reference")
    planner = LowerSetPlanner(job.graphs[0], job.costs, "extended", Hints())
    least = planner.native.minimum().model_peak_bytes
    chains = (planner.solve(int(least * slack), goal) for slack in SETTINGS.slack_ratios for goal in ("time", "memory"))
    candidates = [planner._candidate(chain, job.arena, keep) for chain in chains if chain for keep in (True, False)]
    fewest_bytes = job.arena.live_bytes(planner.min_memory_plan("", job.arena))
    for budget_bytes in (fewest_bytes, int(1.02 * fewest_bytes), int(1.1 * fewest_bytes)):
        plan = planner.plan_within(budget_bytes, "", job.arena)
        seconds = planner._evaluate(plan, job.arena).recompute_seconds
        assert seconds <= min(c.recompute_seconds for c in candidates if c.live_bytes <= budget_bytes) * (1 + 1e-9)


def test_what_is_below_the_bound_is_not_searched():
    net = chain(8)
    planner, job = planner_of(net), ArenaPlanner([net], a_second_each(net))
    assert not planner.may_need_less(planner.least_bytes, job)
    assert planner.plan_within(planner.least_bytes - 1, "", job) is None and not planner.native.searched_step_seconds
