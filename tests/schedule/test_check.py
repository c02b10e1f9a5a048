"""Every way to break a schedule, by hand, with the message of the checker."""

from dataclasses import replace

import pytest

from layermem.graph.ops import DATA, FORWARD, HISTORY, PARAMETER
from layermem.planning.plan import INTRA, Plan, program_order
from layermem.schedule.check import UnsafeSchedule, check, conflicts, violations
from layermem.schedule.ir import D2H
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.program import PersistentOffsets
from tests.schedule.small_graphs import (
    Layout,
    a_second_each,
    buffer,
    graph,
    graph_with_a_fused_update,
    op,
    scheduled,
    small_graph,
    small_plan,
)

# tick stream  op       what            reads              writes                          after
#    0 compute forward  x.forward                          x@1024
#    1 compute forward  a.forward       x@1024 w@0         a@1536 a.forward.workspace@512
#    2 d2h     offload  x               x@1024             host@0                          0
#    3 compute forward  b.forward       a@1536             b@1536
#    4 h2d     prefetch x               host@0             x@512                           1 2
#    5 compute forward  b.output        b@1536
#    6 compute backward b.seed                             b.diff@1024                     2
#    7 compute forward  a.forward*      x@512 w@0          a@1536 a.forward.workspace@2048 4
#    8 compute forward  b.forward*      a@1536             b@1536
#    9 h2d     prefetch h               host@512           h@2048                          7
#   10 compute backward b.backward      b@1536 b.diff@1024 a.diff@1024
#   11 compute backward a.weights       x@512 a.diff@1024  w.diff@1536
#   12 compute update   w.update        w.diff@1536        w@0 h@2048                      9
#   13 d2h     offload  h               h@2048             host@512                        12


@pytest.fixture(scope="module")
def right():
    return scheduled(small_graph(), small_plan())


def residencies_of(schedule, name, host=False):
    """Ids of the residencies of a buffer, in order."""
    return [r.id for r in schedule.residencies if r.buffer == name and r.host == host]


def with_residency(schedule, rid, **changes):
    residencies = list(schedule.residencies)
    residencies[rid] = residencies[rid]._replace(**changes)
    return replace(schedule, residencies=tuple(residencies))


def ticks(schedule, what):
    return [instruction.tick for instruction in schedule.instructions if instruction.what == what]


def with_instruction(schedule, tick, **changes):
    instructions = list(schedule.instructions)
    instructions[tick] = instructions[tick]._replace(**changes)
    return replace(schedule, instructions=tuple(instructions))


def refused(schedule, *sentences):
    found = violations(schedule)
    for sentence in sentences:
        assert any(sentence in each for each in found), found
    with pytest.raises(UnsafeSchedule):
        check(schedule)


def test_the_schedule_itself_is_safe(right):
    assert violations(right) == [] and right.peak_bytes == right.max_live_bytes == 5 * 512
    check(right)


# -- bytes -----------------------------------------------------------------------------------------------------


def test_two_residencies_on_the_same_bytes(right):
    a = right.residencies[residencies_of(right, "a")[0]]
    refused(
        with_residency(right, residencies_of(right, "x")[0], offset=a.offset),
        "tick 1 (forward a.forward) writes 'a' over 'x', which is resident until tick 6",
    )


def test_a_residency_that_ends_before_its_reader(right):
    x = residencies_of(right, "x")[1]
    refused(
        with_residency(right, x, end=ticks(right, "a.weights")[0]),
        "(backward a.weights) touches 'x' outside its residency",
    )


def test_a_residency_that_begins_after_its_writer(right):
    refused(
        with_residency(right, residencies_of(right, "b.diff")[0], begin=7),
        "tick 6 (backward b.seed) touches 'b.diff' outside its residency",
    )


def test_impossible_ticks(right):
    last = len(right.instructions)
    refused(with_residency(right, 0, end=last + 1), f"residency 0 of 'x' has the impossible ticks [0, {last + 1})")
    refused(with_residency(right, 2, begin=5, end=5), "residency 2 of 'a' has the impossible ticks [5, 5)")


def test_a_misaligned_offset(right):
    refused(
        with_residency(right, 0, offset=right.residencies[0].offset + 128), "lies at 1152, which is no multiple of 256"
    )


def test_a_residency_beyond_the_arena(right):
    refused(
        with_residency(right, 0, offset=right.peak_bytes),
        f"residency 0 of 'x' lies at {right.peak_bytes}+512, outside an arena of 2560",
    )
    refused(with_residency(right, 0, offset=-256), "residency 0 of 'x' lies at -256+512, outside")
    host = residencies_of(right, "x", host=True)[0]
    refused(with_residency(right, host, offset=right.host_peak_bytes), "outside an arena of 1024 bytes")


def test_a_peak_that_is_too_low(right):
    refused(replace(right, peak_bytes=right.peak_bytes - 256), "outside an arena of 2304 bytes")


def test_a_residency_smaller_than_its_buffer(right):
    refused(with_residency(right, 0, nbytes=256), "residency 0 of 'x' has 256 bytes, its buffer 512")


def test_a_workspace_too_small_or_missing(right):
    tick = ticks(right, "a.forward")[0]
    workspace = right.instructions[tick].roles["workspace"]
    refused(
        with_residency(right, workspace, nbytes=299), "(forward a.forward) has a workspace of 299 bytes, but needs 300"
    )
    without = {role: rid for role, rid in right.instructions[tick].roles.items() if role != "workspace"}
    refused(
        with_instruction(right, tick, roles=without),
        "gives the roles r0 r1 r2, but its kernel takes r0 r1 r2 workspace",
    )
    unlisted = tuple(rid for rid in right.instructions[tick].writes if rid != workspace)
    refused(with_instruction(right, tick, writes=unlisted), "is wrong about what it writes: a.forward.workspace")


def test_a_workspace_on_bytes_in_use(right):
    tick = ticks(right, "a.forward")[1]
    x = right.residencies[residencies_of(right, "x")[1]]
    refused(
        with_residency(right, right.instructions[tick].roles["workspace"], offset=x.offset),
        "tick 7 (forward a.forward) writes 'a.forward.workspace' over 'x', which is resident until tick 12",
    )


# -- overlays --------------------------------------------------------------------------------------------------


def test_an_overlay_that_the_op_does_not_permit(right):
    seed, b = residencies_of(right, "b.diff")[0], residencies_of(right, "b")[0]
    # As if b.seed were permitted to overlay b.
    moved = with_residency(right, seed, offset=right.residencies[b].offset, over=b)
    refused(moved, "tick 6 (backward b.seed) lays 'b.diff' over 'b' where that is not permitted")


def test_an_overlay_half_on_its_bytes(right):
    b = residencies_of(right, "b")[1]
    refused(
        with_residency(right, b, offset=right.residencies[b].offset + 256),
        "lays 'b' over 'a' where that is not permitted",
    )


def test_an_overlay_on_bytes_that_are_still_needed(right):
    a = residencies_of(right, "a")[1]
    refused(
        with_residency(right, a, end=11), "tick 8 (forward b.forward) lays 'b' over 'a' where that is not permitted"
    )


def test_an_overlay_on_what_comes_later(right):
    refused(
        with_residency(right, 0, over=3),
        "residency 0 of 'x' claims the bytes of residency 3, which does not come before it",
    )


# -- order -----------------------------------------------------------------------------------------------------


def test_every_edge_is_needed(right):
    waiting = [each for each in right.instructions if each.after]
    assert len(waiting) == 7
    for each in waiting:
        for gone in each.after:
            left = tuple(tick for tick in each.after if tick != gone)
            refused(with_instruction(right, each.tick, after=left), "without waiting for tick ")


def test_a_read_that_does_not_wait_for_its_copy(right):
    refused(
        with_instruction(right, 7, after=()),
        "tick 7 (forward a.forward) reads 'x' without waiting for tick 4, which writes it",
    )


def test_a_write_that_does_not_wait_for_a_copy_to_leave(right):
    refused(
        with_instruction(right, 6, after=()),
        "tick 6 (backward b.seed) writes bytes of 'b.diff' without waiting for tick 2",
    )


def test_an_instruction_that_waits_for_a_later_one(right):
    refused(
        with_instruction(right, 4, after=(1, 5)), "tick 4 (prefetch x) waits for tick 5, which does not come before it"
    )


def test_two_instructions_in_the_wrong_order(right):
    instructions = list(right.instructions)
    instructions[10], instructions[11] = instructions[11]._replace(tick=10), instructions[10]._replace(tick=11)
    refused(
        replace(right, instructions=tuple(instructions)),
        "tick 10 (backward a.weights) reads 'a.diff', but its bytes hold 'b.diff'",
        "tick 10 (backward a.weights) reads 'a.diff', which does not hold what 'b.backward' left there",
    )


def test_an_instruction_that_is_missing(right):
    def without(tick):
        instructions = [each for each in right.instructions if each.tick != tick]
        now = {each.tick: i for i, each in enumerate(instructions)}
        instructions = [
            each._replace(tick=now[each.tick], after=tuple(now[t] for t in each.after if t in now))
            for each in instructions
        ]
        ends = [r._replace(end=len(instructions)) if r.end == len(right.instructions) else r for r in right.residencies]
        return replace(right, instructions=tuple(instructions), residencies=tuple(ends))

    refused(without(ticks(right, "w.update")[0]), "'w.update' never runs", "'w' is not at its persistent offset")
    refused(without(ticks(right, "x")[0]), "tick 3 (prefetch x) reads 'x', but its bytes hold nothing")
    refused(without(9), "tick 11 (update w.update) reads 'h', but its bytes hold nothing and 'a.forward.workspace'")
    refused(without(13), "'h' is not at its persistent offset at the end of the step")


def test_instructions_and_residencies_are_numbered_by_their_places(right):
    refused(replace(right, instructions=right.instructions[1:]), "instructions are not numbered by their places")
    refused(replace(right, residencies=right.residencies[::-1]), "residencies are not numbered by their places")


# -- values ----------------------------------------------------------------------------------------------------


def test_a_recomputation_that_reads_other_values(right):
    """a is recomputed from w after the update."""
    order = [op.name for op in right.graph.ops] + ["a.forward"]
    refused(
        scheduled(small_graph(), replace(small_plan(), order=tuple(order))),
        "(forward a.forward) reads 'w', which does not hold what it held when the step began",
    )


def test_a_recomputation_before_the_op_itself(right):
    instructions = list(right.instructions)
    a = small_graph().by_name["a.forward"]
    other = replace(a, recompute=replace(a, recompute=None))
    ops = tuple(other if each.name == "a.forward" else each for each in right.graph.ops)
    instructions[1], instructions[7] = instructions[1]._replace(op=other.recompute), instructions[7]._replace(op=other)
    refused(
        replace(right, graph=replace(right.graph, ops=ops), instructions=tuple(instructions)),
        "tick 1 (forward a.forward) is recomputed before it ran at all",
        "tick 7 (forward a.forward) runs a second time, not as its recomputation",
    )


def test_an_instruction_that_runs_another_op_than_it_says(right):
    refused(
        with_instruction(right, 5, op=right.instructions[6].op),
        "tick 5 (forward b.output) runs something else than the op of that name",
    )
    refused(with_instruction(right, 5, what="c.output"), "tick 5 (forward c.output) is not an op of the graph")


def test_a_parameter_that_is_written_again(right):
    """w.update a second time would change w twice."""
    update = right.instructions[12]
    instructions = (*right.instructions, update._replace(tick=14))
    ends = tuple(r._replace(end=15) if r.end >= 13 else r for r in right.residencies)
    twice = replace(right, instructions=instructions, residencies=ends)
    refused(twice, "tick 14 (update w.update) runs a second time, not as its recomputation")


def test_a_role_on_another_buffer(right):
    roles = {**right.instructions[11].roles, "r0": right.instructions[11].roles["r1"]}
    refused(with_instruction(right, 11, roles=roles), "takes 'a.diff' for its r0, which is 'x'")


def test_an_instruction_that_lists_too_much(right):
    extra = (*right.instructions[11].writes, residencies_of(right, "x")[1])
    refused(with_instruction(right, 11, writes=extra), "tick 11 (backward a.weights) is wrong about what it writes: x")
    refused(with_instruction(right, 11, reads=(99,)), "names residency 99, which does not exist")


# -- copies ----------------------------------------------------------------------------------------------------


def test_a_host_copy_given_away_too_early(right):
    host = residencies_of(right, "x", host=True)[0]
    refused(with_residency(right, host, end=4), "tick 4 (prefetch x) touches 'x' outside its residency [2, 4)")


def test_two_host_copies_on_the_same_bytes(right):
    x = residencies_of(right, "x", host=True)[0]
    refused(
        with_residency(right, residencies_of(right, "h", host=True)[0], offset=right.residencies[x].offset),
        "tick 2 (offload x) writes 'x' over 'h', which is resident until tick 14",
    )


def test_an_op_in_the_host_arena(right):
    host = residencies_of(right, "h", host=True)[0]
    roles = {
        role: host if right.residencies[rid].buffer == "h" else rid
        for role, rid in right.instructions[12].roles.items()
    }
    refused(with_instruction(right, 12, roles=roles), "tick 12 (update w.update) finds 'h' in the host arena")


def test_a_copy_the_wrong_way_or_of_something_else(right):
    refused(
        with_instruction(right, 4, stream=D2H), "tick 4 (prefetch x) copies from the host to the device on stream d2h"
    )
    refused(
        with_instruction(right, 4, kind="offload"),
        "tick 4 (offload x) copies from the host to the device on stream h2d",
    )
    refused(with_instruction(right, 4, reads=()), "is neither an op nor a copy of one residency to another")
    host = residencies_of(right, "h", host=True)[0]
    refused(with_instruction(right, 4, reads=(host,)), "tick 4 (prefetch x) copies 512 bytes of 'h' to 512 of 'x'")


def test_an_op_on_a_stream_of_copies(right):
    refused(with_instruction(right, 5, stream=D2H), "tick 5 (forward b.output) runs on stream d2h")


# -- persistent buffers ----------------------------------------------------------------------------------------


def test_a_parameter_without_bytes_of_its_own(right):
    refused(
        with_residency(right, residencies_of(right, "w")[0], end=13),
        "'w' outlives the step, but has no bytes of its own",
    )


def test_a_parameter_that_a_later_residency_writes_on(right):
    late = residencies_of(right, "w.diff")[0]
    refused(
        with_residency(right, late, offset=0),
        "tick 11 (backward a.weights) writes 'w.diff' over 'w', which is resident",
    )


def test_two_parameters_at_one_offset():
    two = graph(
        [buffer("w", PARAMETER, 512), buffer("v", PARAMETER, 512), buffer("y", DATA, 512)],
        [op("y.forward", FORWARD, "w v", "y")],
    )
    schedule = scheduled(two, Plan("by hand", program_order(two)))
    v = residencies_of(schedule, "v")[0]
    offset = schedule.residencies[residencies_of(schedule, "w")[0]].offset
    refused(with_residency(schedule, v, offset=offset), "have persistent offsets on the same bytes")


def beside(persistent):
    """A second graph in the arena: it reads w, and has a buffer of its own."""
    buffers = [buffer("w", PARAMETER, 512), buffer("t", DATA, 512)]
    other = graph(buffers, [op("t.forward", FORWARD, "w", "t")])
    plan = Plan("by hand", program_order(other), {}, INTRA)
    return place(lower(Layout(other, a_second_each(other)), plan), persistent=persistent)


def test_schedules_of_one_arena_leave_each_others_persistent_buffers_alone():
    """The test net does not use h, but its activations may not lie there."""
    persistent = PersistentOffsets({"w": 0, "h": 512}, 1024)
    plan, layout = replace(small_plan(), decisions={}), Layout(small_graph(), a_second_each(small_graph()))
    train = place(lower(layout, plan), persistent=persistent)
    apart = beside(persistent)
    assert conflicts([train, apart]) == []
    check(train, apart)
    over = beside(PersistentOffsets({"w": 0}, 0))
    assert violations(over) == []
    assert conflicts([train, over]) == ["'t' of small train lies on 'h', which outlives the step"]
    with pytest.raises(UnsafeSchedule, match="lies on 'h'"):
        check(train, over)


def test_a_parameter_keeps_its_offset_from_schedule_to_schedule(right):
    elsewhere = beside(PersistentOffsets({"w": 1024}, 1536))
    assert conflicts([right, elsewhere]) == ["'w' outlives a step, but has other bytes in small train than before"]


def test_persistent_buffers_of_two_schedules_do_not_meet(right):
    one = graph([buffer("v", HISTORY, 512)], [op("v.forward", FORWARD, updates="v")])
    plan = Plan("by hand", program_order(one))
    alone = place(lower(Layout(one, a_second_each(one)), plan), persistent=PersistentOffsets({"v": 0}, 512))
    assert alone.residencies[0].offset == right.residencies[residencies_of(right, "w")[0]].offset == 0
    assert "'v' of small train lies on 'w', which outlives the step" in conflicts([right, alone])


def test_an_error_counts_what_it_does_not_quote(right):
    with pytest.raises(UnsafeSchedule, match=r"; .* \(and \d+ more\)$"):
        check(replace(right, peak_bytes=0, host_peak_bytes=0))


# -- fused updates ----------------------------------------------------------------------------------------------


def plan_with_update(*last):
    """small_plan with other ops at its end."""
    order = (*small_plan().order[:-2], *last)
    return replace(small_plan(), order=order)


def test_a_fused_update_may_run_in_place_of_those_that_it_covers():
    schedule = scheduled(graph_with_a_fused_update(), plan_with_update("a.backward_update"))
    assert violations(schedule) == [] and not residencies_of(schedule, "w.diff")


@pytest.mark.parametrize("last", [("a.weights", "a.backward_update"), ("a.weights", "w.update", "a.backward_update")])
def test_a_fused_update_beside_what_it_covers(last):
    refused(
        scheduled(graph_with_a_fused_update(), plan_with_update(*last)),
        "(backward a.backward_update) runs a second time, not as its recomputation",
    )


def test_a_fused_update_before_the_last_reader_of_its_parameter():
    order = (
        "x.forward",
        "a.forward",
        "b.forward",
        "b.output",
        "b.seed",
        "b.backward",
        "a.backward_update",
        "a.forward",
    )
    schedule = scheduled(graph_with_a_fused_update(), replace(small_plan(), order=order, decisions={}))
    refused(schedule, "(forward a.forward) reads 'w', which does not hold what it held when the step began")
