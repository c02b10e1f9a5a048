"""Placement: residencies drawn as rows of ticks, and their offsets."""

from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import assign_offsets, place
from layermem.schedule.program import PersistentOffsets
from tests.schedule.drawing import residencies
from tests.schedule.small_graphs import a_second_each, small_graph, small_plan


def offsets(rows, **options):
    """Offsets in the order of the rows, and the peak."""
    placed = assign_offsets(rows, **options)
    return [placed.offset[r.id] for r in rows if r.id in placed.offset], placed.peak_bytes


def test_bytes_are_given_to_what_begins_where_they_end():
    rows = residencies("""
        a 512 ##..
        b 512 ..##
    """)
    assert offsets(rows) == ([0, 0], 512)


def test_residencies_alive_at_one_tick_share_no_byte():
    rows = residencies("""
        a 512 ##..
        b 512 .##.
    """)
    placed, peak = offsets(rows)
    assert sorted(placed) == [0, 512] and peak == 1024


def test_sizes_are_rounded_up_to_the_alignment():
    rows = residencies("""
        a   1 #
        b 257 #
    """)
    assert offsets(rows)[1] == 256 + 512


def test_two_small_ones_go_where_a_large_one_was():
    """At most 1024 bytes are live at once, and no more are used."""
    rows = residencies("""
        large 1024 ##....
        left   512 ..####
        right  512 ..##..
        next   512 ....##
    """)
    placed, peak = offsets(rows)
    assert peak == 1024 and placed[0] == 0 and placed[2] == placed[3] != placed[1]


def test_offsets_are_better_than_first_fit_in_the_order_of_rows():
    """First fit puts a at 0, b at 256 and c at 512: 1024 bytes.  With b at an end of the arena, 768 will do."""
    rows = residencies("""
        a 256 ##..
        b 256 .##.
        c 512 ..#.
        d 256 ...#
    """)
    placed, peak = offsets(rows)
    assert peak == 768 == assign_offsets(rows).bound_bytes  # b and c meet
    assert placed[1] in (0, 512)


def test_a_chain_of_overlays_is_one_block_that_lives_as_long_as_all_of_them():
    rows = residencies(
        """
        a     512 ##....
        b     512 .##...
        c     512 ..###.
        other 512 ...#..
        later 512 .....#
        """,
        over={"b": "a", "c": "b"},
    )
    placed, peak = offsets(rows)
    a, b, c, other, _ = placed
    assert a == b == c != other and peak == 1024
    assert assign_offsets(rows).blocks == 3


def test_each_arena_counts_its_own_residencies_alone():
    rows = residencies(
        """
        a 512 ##
        h 768 ##
        """,
        host={"h"},
    )
    assert offsets(rows) == ([0], 512)
    assert offsets(rows, host=True) == ([0], 768)


def test_persistent_buffers_keep_their_offsets_and_others_lie_above_all_of_them():
    """v has no residency in this graph, but its bytes stay free."""
    rows = residencies("""
        w 256 ##
        a 256 #.
        b 256 .#
    """)
    persistent = PersistentOffsets({"v": 0, "w": 256}, 512, {}, 0)
    assert offsets(rows, persistent=persistent) == ([256, 512, 512], 768)


def test_the_peak_is_never_below_the_end_of_the_persistent_buffers():
    persistent = PersistentOffsets({"w": 0}, 1024, {"h": 0}, 512)
    assert assign_offsets([], persistent).peak_bytes == 1024
    assert assign_offsets([], persistent, host=True).peak_bytes == 512


def test_a_schedule_has_the_peaks_of_both_arenas_and_every_residency_an_offset():
    """The small step by hand: at most 5 buffers of 512 bytes meet, and x and h are on the host at once."""
    net = small_graph()
    schedule = place(lower(Layout(net, a_second_each(net)), small_plan()))
    assert (schedule.max_live_bytes, schedule.peak_bytes, schedule.host_peak_bytes) == (5 * 512, 5 * 512, 2 * 512)
    assert all(r.offset >= 0 and r.offset % 256 == 0 for r in schedule.residencies)


def test_placed_instructions_wait_for_each_other():
    """lower() knows no offsets, so place() adds the edges (test_dependencies.py)."""
    net = small_graph()
    lowered = lower(Layout(net, a_second_each(net)), small_plan())
    assert not any(i.after for i in lowered.instructions)
    assert [i.after for i in place(lowered).instructions if i.kind in ("offload", "prefetch")] == [
        (0,),
        (1, 2),
        (7,),
        (12,),
    ]
