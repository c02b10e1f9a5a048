"""Predicted times: streams run in parallel, and an instruction waits for those that it names."""

import pytest

from layermem.graph.ops import FORWARD, Graph
from layermem.planning.costs import Costs, Rates
from layermem.planning.plan import Plan
from layermem.schedule.ir import Instruction, Residency, Schedule
from layermem.schedule.simulate import simulate
from tests.schedule.small_graphs import op

# 512 bytes leave in 3 seconds and come back in 1.5, each with half a second of launch in it
COSTS = Costs(Rates(flops=1, memory=1, d2h=512 / 2.5, h2d=512, launch=0.5), {"short": 1.0, "long": 4.0})
BLOB = (Residency(0, "x", 0, 9, 512, 0), Residency(1, "x", 0, 9, 512, 0, host=True))
STREAM = {"offload": "d2h", "prefetch": "h2d"}


def timeline(*steps):
    """The timeline of (name, ticks that it waits for), in order."""
    instructions = [
        Instruction(
            tick, STREAM[what], what, "x", None, {}, *(((0,), (1,)) if what == "offload" else ((1,), (0,))), after
        )
        if what in STREAM
        else Instruction(tick, "compute", "forward", what, op(what, FORWARD), {}, (), (), after)
        for tick, (what, after) in enumerate(steps)
    ]
    return simulate(
        Schedule(Graph("by hand", {}, (), "cpu"), Plan("", ()), tuple(instructions), BLOB, 512, 512, 512), COSTS
    )


def test_instructions_of_one_stream_follow_each_other():
    found = timeline(("short", ()), ("long", ()), ("short", ()))
    assert (found.start, found.end) == ((0, 1, 5), (1, 5, 6))
    assert found.seconds == found.compute_seconds == 6


def test_streams_run_beside_each_other_and_the_step_ends_with_the_last_of_them():
    found = timeline(("short", ()), ("offload", ()), ("prefetch", ()))
    assert found.end == pytest.approx((1, 3, 1.5))
    assert (found.seconds, found.compute_seconds) == (pytest.approx(3), 1)


def test_an_instruction_starts_when_the_last_of_those_that_it_waits_for_ends():
    """compute |s|  |-long--|      0-1, 4-8
    d2h       |--|               1-4
    h2d              |-|         8-9.5, after the long op and the offload
    """
    found = timeline(("short", ()), ("offload", (0,)), ("long", (1,)), ("prefetch", (1, 2)))
    assert found.start == pytest.approx((0, 1, 4, 8)) and found.end == pytest.approx((1, 4, 8, 9.5))
    assert found.compute_seconds == 5


def test_a_copy_that_ends_while_an_op_runs_costs_nothing():
    found = timeline(("short", ()), ("offload", (0,)), ("long", ()), ("short", (1,)))
    assert found.seconds == found.compute_seconds == 6


def test_a_schedule_without_instructions_takes_no_time():
    assert timeline().seconds == 0


def test_joined_updates_have_one_launch():
    """Two ops of one second each follow a launch of half a second."""
    rows = [
        Instruction(tick, "compute", "update", name, op(name, FORWARD, joins="SGD", flops=1), {}, (), ())
        for tick, name in enumerate(("first", "second"))
    ]
    found = simulate(Schedule(Graph("by hand", {}, (), "cpu"), Plan("", ()), tuple(rows), BLOB, 512, 512, 512), COSTS)
    assert found.end == pytest.approx((1.5, 2.5))
