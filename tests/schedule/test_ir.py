"""Live residencies of a schedule, the tick of its peak, and one allocation for a chain of overlays."""

from layermem.graph.ops import Graph
from layermem.planning.plan import Plan
from layermem.schedule.ir import Instruction, Schedule, allocations
from tests.schedule.drawing import residencies
from tests.schedule.small_graphs import op, scheduled, small_graph, small_plan

STAYS = residencies(
    """
    a 300 ###...
    b 300 ..###.
    c 700 ....##
    d 256 .#....
    h 999 ######
    """,
    over={"b": "a"},
    host={"h"},
)


def schedule():
    ticks = tuple(Instruction(t, "compute", "forward", "", op("", "forward"), {}, (), ()) for t in range(6))
    return Schedule(Graph("by hand", {}, (), "cpu"), Plan("", ()), ticks, tuple(STAYS), 2048, 1024, 1280)


def test_a_chain_of_overlays_is_one_allocation_of_aligned_bytes():
    assert allocations(tuple(STAYS)) == [(0, 5, 512), (4, 6, 768), (1, 2, 256)]


def test_live_bytes_of_a_tick_count_once_and_leave_the_host_out():
    """At tick 2, b has taken the bytes of a over; at tick 4, c is live together with it."""
    live = [[r.buffer for r in schedule().live_at(tick)] for tick in range(6)]
    assert live == [["a"], ["a", "d"], ["b"], ["b"], ["c", "b"], ["c"]]


def test_the_peak_tick_is_the_first_one_with_the_most_bytes():
    """The live bytes are 512, 768, 512, 512, 1280 and 768."""
    assert schedule().peak_tick == 4


def test_fragmentation_is_what_the_peak_has_above_the_live_bytes():
    assert schedule().fragmentation_bytes == 768


def test_persistent_bytes_are_those_of_parameters_and_optimizer_state():
    assert scheduled(small_graph(), small_plan()).persistent_bytes == 2 * 512  # w and h
