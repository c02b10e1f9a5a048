"""Lowering: begins and ends of residencies and positions of copies, on chains of a few ops."""

from dataclasses import replace

from layermem.graph.ops import BACKWARD, DATA, FORWARD, PARAMETER, UPDATE, BufferOverlay
from layermem.planning.plan import INPLACE, REUSE, Decision, Gap, Plan, program_order
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from tests.schedule.drawing import drawn
from tests.schedule.small_graphs import a_second_each, buffer, graph, op, repeatable, small_graph, small_plan


def lowered(net, plan):
    return lower(Layout(net, a_second_each(net)), plan)


def rows(net, plan):
    result = lowered(net, plan)
    return drawn(result.residencies, len(result.instructions))


def chain(*overlays):
    """x -> a -> b, and b.diff from b."""
    return graph(
        [buffer(name, DATA, 256) for name in ("x", "a", "b", "b.diff")],
        [
            op("x", FORWARD, writes="x"),
            repeatable(op("a", FORWARD, "x", "a", overlays=overlays)),
            op("b", FORWARD, "a", "b"),
            op("back", BACKWARD, "b", "b.diff"),
        ],
    )


def test_an_op_keeps_its_operands_and_a_buffer_is_resident_from_its_writer_to_its_last_reader():
    net = chain()
    result = lowered(net, Plan("by hand", program_order(net)))
    assert drawn(result.residencies, 4) == "x ##..\na .##.\nb ..##\nb.diff ...#"
    assert [(i.what, i.reads, i.writes) for i in result.instructions] == [
        ("x", (), (0,)),
        ("a", (0,), (1,)),
        ("b", (1,), (2,)),
        ("back", (2,), (3,)),
    ]


def test_an_overlay_joins_an_output_to_the_input_that_ends_there_if_the_plan_allows_its_kind():
    net = chain(BufferOverlay("a", "x", "forward"))

    def overlaid(overlays):
        result = lowered(net, Plan("by hand", program_order(net), overlays=overlays))
        return {r.buffer: r.over for r in result.residencies}

    assert overlaid(REUSE) == {"x": None, "a": 0, "b": None, "b.diff": None}
    assert overlaid(INPLACE) == dict.fromkeys(("x", "a", "b", "b.diff"))


def test_an_input_that_is_read_again_keeps_its_own_bytes():
    net = chain(BufferOverlay("a", "x", "forward"))
    late_reader = replace(net.by_name["back"], reads=("b", "x"), roles={"r0": "b", "r1": "x", "r2": "b.diff"})
    net = replace(net, ops=(*net.ops[:3], late_reader))
    result = lowered(net, Plan("by hand", program_order(net), overlays=REUSE))
    assert [r.over for r in result.residencies] == [None] * 4


def test_bytes_go_to_one_of_two_outputs_that_may_overlay_them():
    both = (BufferOverlay("y", "x", "forward"), BufferOverlay("z", "x", "forward"))
    net = graph(
        [buffer(name, DATA, 256) for name in "xyz"],
        [op("x", FORWARD, writes="x"), op("split", FORWARD, "x", "y z", overlays=both)],
    )
    result = lowered(net, Plan("by hand", program_order(net), overlays=REUSE))
    assert [(r.buffer, r.over) for r in result.residencies] == [("x", None), ("y", 0), ("z", None)]


def test_an_offload_follows_the_use_before_its_gap_and_its_prefetch_stands_before_the_next_use():
    """The third use of x would wait for its copies: 2 s out from 2 s on, 2 s back, while ops take a second each."""
    instructions = lowered(small_graph(), small_plan()).instructions
    assert [(i.tick, i.kind, i.what) for i in instructions if i.op is None] == [
        (2, "offload", "x"),
        (4, "prefetch", "x"),
        (9, "prefetch", "h"),
        (13, "offload", "h"),
    ]
    assert [i.stream for i in instructions if i.op is None] == ["d2h", "h2d", "h2d", "d2h"]


def test_every_residency_of_a_plan_that_recomputes_and_offloads():
    """a and b are made twice; x leaves after tick 1 and h is on the host between steps, so both have two arenas."""
    assert rows(small_graph(), small_plan()) == "\n".join(
        [
            "x ######........",  # until its copy at tick 2 is certainly done
            "w ##############",
            "a .###..........",
            "a.forward.workspace .#............",
            "x* ..######......",  # until the op that waits for its prefetch, at tick 7, has run
            "b ...###........",
            "x ....########..",
            "b.diff ......#####...",
            "a .......##.....",
            "a.forward.workspace .......#......",
            "b ........###...",
            "h* ##############",
            "h .........#####",
            "a.diff ..........##..",
            "w.diff ...........##.",
        ]
    )


def test_a_repeated_op_runs_its_recomputation_on_new_residencies():
    net, plan = small_graph(), small_plan()
    first, second = (i for i in lowered(net, plan).instructions if i.what == "a.forward")
    assert (first.is_recompute, second.is_recompute) == (False, True)
    assert first.op is net.by_name["a.forward"] and second.op is net.by_name["a.forward"].recompute
    assert set(first.writes).isdisjoint(second.writes)


def test_a_parameter_with_one_place_on_the_host_is_read_from_there_and_written_back_there():
    """It is updated in this step, so it must leave again; x leaves twice and has a place for each copy."""
    net = graph(
        [buffer("x", DATA, 256), buffer("w", PARAMETER, 256), buffer("y", DATA, 256)],
        [
            op("x", FORWARD, writes="x"),
            op("wait", FORWARD, writes="y"),
            op("use", FORWARD, "x y"),
            op("grow", FORWARD, updates="x"),
            op("rest", FORWARD, "y"),
            op("update", UPDATE, "x", updates="w"),
        ],
    )
    decisions = {Gap("x", 0): Decision.OFFLOAD, Gap("x", 2): Decision.OFFLOAD, Gap("w", -1): Decision.OFFLOAD}
    result = lowered(net, Plan("by hand", program_order(net), decisions))
    host = [r for r in result.residencies if r.host]
    assert sorted(r.buffer for r in host) == ["w", "x", "x"]
    (w,) = (r for r in host if r.buffer == "w")
    assert (w.begin, w.end) == (0, len(result.instructions))
    copies = {i.kind: i for i in result.instructions if i.what == "w"}
    assert copies["prefetch"].reads == copies["offload"].writes == (w.id,)


def test_a_buffer_that_keeps_its_bytes_into_the_next_step_has_them_at_every_tick():
    net = chain()
    plan = Plan("by hand", program_order(net), {Gap("b", -1): Decision.KEEP})
    assert rows(net, plan) == "x ##..\na .##.\nb ####\nb.diff ...#"
