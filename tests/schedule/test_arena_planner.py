"""Several graphs in one arena: their persistent buffers, their live bytes, and the plans of test nets."""

from dataclasses import replace

import pytest

from layermem.api import build_net, job_of
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, HISTORY, PARAMETER, UPDATE
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Decision, Gap, Plan, program_order
from layermem.schedule.arena_planner import KEPT, ArenaPlanner, RecentPrograms
from tests.schedule.small_graphs import a_second_each, buffer, graph, op

BOTH = {Gap("h", -1): Decision.OFFLOAD, Gap("w", -1): Decision.OFFLOAD}


@pytest.fixture
def graphs():
    """train: x and w -> dw, then w and h change; it takes w, h, x and dw, 256 bytes each.

    test: y and z of 1 KiB each, z from w and y; it has a parameter v of its own (512 bytes), and no h.
    """
    train = graph(
        [buffer("w", PARAMETER, 256), buffer("h", HISTORY, 256), buffer("x", DATA, 256), buffer("dw", DIFF, 256)],
        [op("x", FORWARD, writes="x"), op("dw", BACKWARD, "x w", "dw"), op("update", UPDATE, "dw", updates="w h")],
    )
    test = graph(
        [buffer("w", PARAMETER, 256), buffer("v", PARAMETER, 512), buffer("y", DATA, 1024), buffer("z", DATA, 1024)],
        [op("y", FORWARD, writes="y"), op("z", FORWARD, "w v y", "z")],
    )
    return train, test


@pytest.fixture
def arena(graphs):
    return ArenaPlanner(graphs, a_second_each(graphs[0]))


@pytest.fixture
def plan(graphs):
    return Plan("liveness", program_order(graphs[0]), copy_lead=0.5)


def test_persistent_buffers_of_all_graphs_are_stacked_once_each(arena, plan):
    offsets = arena.persistent_offsets(plan)
    assert offsets.device == {"w": 0, "h": 256, "v": 512}
    assert (offsets.device_bytes, offsets.host, offsets.host_bytes) == (1024, {}, 0)


def test_state_that_is_offloaded_between_steps_moves_to_the_host_and_the_rest_closes_up(arena, plan):
    offsets = arena.persistent_offsets(replace(plan, decisions=BOTH))
    assert (offsets.device, offsets.device_bytes) == ({"v": 0}, 512)
    assert (offsets.host, offsets.host_bytes) == ({"w": 0, "h": 256}, 512)


def test_an_offload_within_the_step_does_not_move_a_buffer(arena, plan):
    assert arena.persistent_offsets(replace(plan, decisions={Gap("w", 0): Decision.OFFLOAD})).host == {}


def test_live_bytes_are_those_of_the_graph_that_needs_most(arena, graphs, plan):
    """The train step needs 1 KiB of w, h and v, and x with dw.  The test net needs the same, and y with z."""
    assert ArenaPlanner(graphs[:1], a_second_each(graphs[0])).live_bytes(plan) == 2 * 256 + 2 * 256
    assert arena.live_bytes(plan) == 1024 + 2 * 1024


def test_bytes_of_the_training_graph_count_with_what_only_the_others_keep(graphs, plan):
    """A test net that needs only its parameters holds their bytes while the other graph trains."""
    train, test = graphs
    small = replace(test, ops=(op("z", FORWARD, "w v"),), buffers={n: test.buffers[n] for n in "wv"})
    assert ArenaPlanner((train, small), a_second_each(train)).live_bytes(plan) == 1024 + 2 * 256


def test_the_profile_is_the_bytes_of_each_op_of_all_graphs(arena, plan):
    # train: w, h and v throughout, and x until dw is made; test: w and v, and no h
    assert arena.live_profile(plan) == [1280, 1536, 1280, 2048, 3072]
    assert max(arena.live_profile(plan)) == arena.live_bytes(plan)


def test_state_on_the_host_is_there_for_the_other_graphs_too(arena, plan):
    """The test net fetches w for its op, and never holds h; so the arena holds y, z, w and v."""
    train, test = arena.plans(replace(plan, decisions=BOTH))
    assert train.decisions == BOTH
    assert test.decisions == {Gap("w", -1): Decision.OFFLOAD, Gap("w", 0): Decision.OFFLOAD}
    assert (test.strategy, test.copy_lead) == ("liveness", 0.5)
    assert arena.live_bytes(replace(plan, decisions=BOTH)) == 2 * 1024 + 256 + 512


def test_copies_of_the_other_graphs_hold_bytes_up_to_the_same_limit(arena, plan):
    """v is on the device only for the test net, and h, once it is on the host, for none."""
    for decisions, of_test in (({}, 4096 + 512 - 256), (BOTH, 4096 + 512)):
        limited = replace(plan, decisions=decisions, copy_limit_bytes=4096)
        assert arena.plans(limited)[1].copy_limit_bytes == of_test
    assert arena.plans(plan)[1].copy_limit_bytes is None


def test_under_caffe_the_other_graphs_share_nothing_either(arena, plan):
    _, test = arena.plans(replace(plan, strategy="caffe"))
    assert test.strategy == "caffe" and test.decisions[Gap("y", -1)] is Decision.KEEP


def test_a_plan_of_an_unknown_strategy_has_others_that_reuse_bytes(arena, plan):
    assert arena.plans(replace(plan, strategy="mine"))[1].strategy == "liveness"


def test_cached_values_are_made_once(arena):
    made = []
    answers = [arena.cached("key", lambda: made.append(1) or len(made)) for _ in range(3)]
    assert answers == [1, 1, 1] and arena.cached("another key", lambda: 7) == 7


def test_state_returns_to_the_device_only_where_the_test_net_fits_beside_it(arena, plan):
    """The test net uses w in any case; h would take 256 bytes more."""
    plan = replace(plan, decisions=BOTH)
    groups = [[gap] for gap in BOTH]
    most_bytes = arena.live_bytes(plan)
    left, seconds = arena.without_offloads(plan, groups, most_bytes)
    assert [*left] == [Gap("h", -1)]
    assert seconds == arena.estimate_seconds(replace(plan, decisions=left))
    assert arena.without_offloads(plan, groups, most_bytes + 256)[0] == {}


def test_no_offloads_are_enough_where_the_test_net_does_not_fit(arena, plan):
    most_bytes = arena.live_bytes(plan)
    assert arena.fewest_offloads(plan, [Gap("x", 0)], most_bytes) == 0
    assert arena.fewest_offloads(plan, [Gap("x", 0)], most_bytes - 256) is None


# -- equal plans of several strategies are placed and checked once -----------------------------------------------------


def compiled(job, strategy, budget_bytes=None):
    return Compiler(job.arena, strategy, job.hints).compile(budget_bytes)


def digits():
    return job_of(build_net("prototxt/digits/train_val.prototxt", "TRAIN", batch=4), device="reference")


def test_an_equal_plan_of_another_strategy_has_the_same_schedule_under_its_own_name():
    job = digits()
    first, second = compiled(job, "liveness"), compiled(job, "sublinear")
    again = compiled(job, "liveness")
    assert again.train.instructions is first.train.instructions and again.plan.strategy == "liveness"
    assert second.plan.strategy == "sublinear"
    assert compiled(digits(), "liveness").train.residencies == first.train.residencies


def test_a_program_without_fragmentation_serves_every_budget():
    job = digits()
    first = compiled(job, "liveness")
    assert first.arena_bytes == first.max_live_bytes
    assert compiled(job, "liveness", first.arena_bytes).train.instructions is first.train.instructions


@pytest.mark.parametrize("first_target", [0, 1])
def test_with_fragmentation_a_budget_that_it_may_reach_is_placed_anew(first_target):
    program, programs, made = compiled(digits(), "liveness"), RecentPrograms(), []
    program = replace(program, arena_bytes=program.arena_bytes + 256)
    live_bytes = program.max_live_bytes
    assert program.arena_bytes > live_bytes

    def make():
        made.append(1)
        return program

    for target_bytes in (first_target, 0, 1, live_bytes):  # no offsets reach these
        programs.get("plan", target_bytes, program.plan, make)
    assert len(made) == 1
    for target_bytes in (live_bytes + 1, live_bytes + 2, live_bytes + 1, 0):
        programs.get("plan", target_bytes, program.plan, make)
    assert len(made) == 3


def test_a_program_is_checked_once():
    job, checked = digits(), []
    program = compiled(job, "liveness")
    programs = RecentPrograms()
    for _ in range(2):
        programs.check(program, lambda: checked.append(1))
    assert checked == [1]


def test_only_the_last_programs_are_kept():
    program, programs, made = compiled(digits(), "liveness"), RecentPrograms(), []

    def make():
        made.append(1)
        return program

    for number in [*range(KEPT + 1), KEPT, 0]:
        programs.get(number, 0, program.plan, make)
    assert len(made) == KEPT + 2 and len(programs._programs) == KEPT
