"""Edges between streams: enough for every order that they permit, and none that another one implies."""

import random

import pytest

from layermem.graph.ops import UPDATE
from layermem.schedule.dependencies import with_dependencies
from layermem.schedule.ir import Instruction, Residency
from layermem.utils.units import aligned
from tests.schedule.small_graphs import op


def edges(places, steps):
    """The `after` of each of `steps`, (stream, residencies read, residencies written); `places` are (offset, bytes)."""
    residencies = [Residency(i, f"b{i}", 0, 1, nbytes, offset) for i, (offset, nbytes) in enumerate(places)]
    instructions = [
        Instruction(tick, stream, "", "", None, {}, reads, writes) for tick, (stream, reads, writes) in enumerate(steps)
    ]
    return [i.after for i in with_dependencies(instructions, residencies)]


def test_a_copy_waits_for_the_op_that_writes_what_it_reads():
    assert edges([(0, 256), (256, 256)], [("compute", (), (0,)), ("compute", (), (1,)), ("d2h", (0,), ())])[2] == (0,)


def test_an_op_waits_for_a_copy_that_still_reads_the_bytes_that_it_overwrites():
    """Residency 1 reuses bytes of residency 0."""
    steps = [("compute", (), (0,)), ("d2h", (0,), ()), ("compute", (), (1,))]
    assert edges([(0, 512), (256, 256)], steps) == [(), (0,), (1,)]
    assert edges([(0, 512), (512, 256)], steps) == [(), (0,), ()]


def test_two_readers_do_not_wait_for_each_other():
    steps = [("compute", (), (0,)), ("d2h", (0,), ()), ("compute", (0,), ())]
    assert edges([(0, 256)], steps) == [(), (0,), ()]


def test_instructions_of_one_stream_need_no_edges():
    steps = [("compute", (), (0,)), ("compute", (0,), (1,)), ("compute", (1,), (0,))]
    assert edges([(0, 256), (256, 256)], steps) == [(), (), ()]


def test_an_edge_that_another_one_implies_is_left_out():
    """The prefetch writes over bytes that tick 0 wrote, but it waits for the offload, which waited for tick 0."""
    steps = [("compute", (), (0,)), ("d2h", (0,), ()), ("h2d", (), (0,)), ("compute", (0,), ())]
    assert edges([(0, 256)], steps) == [(), (0,), (1,), (2,)]


def test_arenas_have_bytes_of_their_own():
    instructions = [
        Instruction(0, "d2h", "", "", None, {}, (), (0,)),
        Instruction(1, "compute", "", "", None, {}, (), (1,)),
    ]
    residencies = [Residency(0, "h", 0, 2, 256, 0, host=True), Residency(1, "a", 0, 2, 256, 0)]
    assert [i.after for i in with_dependencies(instructions, residencies)] == [(), ()]


def required(places, steps):
    """Every pair of ticks whose order matters: one writes bytes that the other accesses, or a value that it reads."""

    def meet(a, b):
        (start, nbytes), (other, count) = places[a], places[b]
        return nbytes and count and start < other + aligned(count) and other < start + aligned(nbytes)

    pairs, writer = set(), {}
    for later, (_, reads, writes) in enumerate(steps):
        pairs |= {(writer[rid], later) for rid in reads if rid in writer}
        for earlier in range(later):
            if any(meet(a, b) for a in writes for b in {*steps[earlier][1], *steps[earlier][2]}):
                pairs.add((earlier, later))
        writer.update(dict.fromkeys(writes, later))
    return pairs


def implied(steps, after):
    """Every pair of ticks that streams and `after` order."""
    before = []
    for tick, (stream, _, _) in enumerate(steps):
        direct = {*after[tick], *(t for t in range(tick) if steps[t][0] == stream)}
        before.append(direct.union(*(before[t] for t in direct)))
    return {(earlier, later) for later, earliers in enumerate(before) for earlier in earliers}


@pytest.mark.parametrize("block", range(4))
def test_edges_order_all_that_must_be_ordered_and_each_is_needed(block):
    """Random instructions on a handful of overlapping places, against all pairs of them."""
    seen = 0
    for seed in range(block * 50, block * 50 + 50):
        draw = random.Random(seed)
        places = [(256 * draw.randrange(8), draw.choice((0, 100, 256, 700))) for _ in range(6)]
        steps = [
            (
                draw.choice(("compute", "compute", "d2h", "h2d")),
                tuple(draw.sample(range(3), draw.randint(0, 2))),
                tuple(draw.sample(range(3, 6), draw.randint(0, 1))) or (draw.randrange(6),),
            )
            for _ in range(12)
        ]
        after = edges(places, steps)
        wanted = required(places, steps)
        assert wanted <= implied(steps, after), seed
        for tick, ticks in enumerate(after):
            for edge in ticks:
                fewer = [*after[:tick], tuple(t for t in ticks if t != edge), *after[tick + 1 :]]
                assert not wanted <= implied(steps, fewer), (seed, edge, tick)
                seen += 1
    assert seen > 50


def test_instructions_that_are_launched_together_wait_and_are_waited_for_together():
    """Copies of the two buffers that joined updates read, and others that take their bytes."""
    places = [(0, 256), (256, 256), (0, 256), (256, 256)]
    residencies = [Residency(i, f"b{i}", 0, 1, nbytes, offset) for i, (offset, nbytes) in enumerate(places)]
    update = op("update", UPDATE, joins="SGD")
    instructions = [
        Instruction(0, "h2d", "", "", None, {}, (), (0,)),
        Instruction(1, "h2d", "", "", None, {}, (), (1,)),
        Instruction(2, "compute", UPDATE, "", update, {}, (0,), ()),
        Instruction(3, "compute", UPDATE, "", update, {}, (1,), ()),
        Instruction(4, "h2d", "", "", None, {}, (), (2,)),
        Instruction(5, "h2d", "", "", None, {}, (), (3,)),
    ]
    assert [i.after for i in with_dependencies(instructions, residencies)] == [(), (), (1,), (), (3,), ()]
