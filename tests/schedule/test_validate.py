"""Every rule for a residency or instruction, each broken separately in a schedule of one op and two copies."""

from dataclasses import replace

import pytest

from layermem.graph.ops import DATA, FORWARD
from layermem.planning.hints import Hints
from layermem.planning.offloading import HostBudget
from layermem.planning.plan import Decision, Gap, Plan, program_order
from layermem.schedule.text import parse, text
from layermem.schedule.validate import structural_errors
from tests.schedule.small_graphs import buffer, graph, op, scheduled


@pytest.fixture(scope="module")
def right():
    """x is made, offloaded, brought back and read; y is made in between with a workspace.

    tick         0  1        2  3         4
                 x  offload  y  prefetch  z      residencies  x 0, x on the host 1, y 2, y.workspace_bytes 3, x 4, z 5
    """
    net = graph(
        [buffer(name, DATA, 512) for name in "xyz"],
        [op("x", FORWARD, writes="x"), op("y", FORWARD, writes="y", workspace_bytes=256), op("z", FORWARD, "x y", "z")],
    )
    schedule = scheduled(net, Plan("by hand", program_order(net), {Gap("x", 0): Decision.OFFLOAD}, copy_lead=0.0))
    assert [(i.what, i.kind) for i in schedule.instructions] == [
        ("x", "forward"),
        ("x", "offload"),
        ("y", "forward"),
        ("x", "prefetch"),
        ("z", "forward"),
    ]
    assert [(r.buffer, r.host) for r in schedule.residencies] == [
        ("x", False),
        ("x", True),
        ("y", False),
        ("y.workspace", False),
        ("x", False),
        ("z", False),
    ]
    return schedule


def with_residency(schedule, rid, **changes):
    rows = [r._replace(**changes) if i == rid else r for i, r in enumerate(schedule.residencies)]
    return replace(schedule, residencies=tuple(rows))


def with_instruction(schedule, place, **changes):
    rows = [i._replace(**changes) if at == place else i for at, i in enumerate(schedule.instructions)]
    return replace(schedule, instructions=tuple(rows))


def test_a_schedule_that_was_lowered_and_placed_keeps_every_rule(right):
    assert structural_errors(right) == []


@pytest.mark.parametrize(
    ("rid", "changes", "sentence"),
    [
        (0, {"begin": 3, "end": 3}, "residency 0 of 'x' has the impossible ticks [3, 3)"),
        (0, {"end": 6}, "residency 0 of 'x' has the impossible ticks [0, 6)"),
        (2, {"offset": 100}, "residency 2 of 'y' lies at 100, which is no multiple of 256"),
        (2, {"offset": -256}, "residency 2 of 'y' lies at -256+512, outside an arena of 2048 bytes"),
        (2, {"offset": 1792}, "residency 2 of 'y' lies at 1792+512, outside an arena of 2048 bytes"),
        (1, {"offset": 256}, "residency 1 of 'x' lies at 256+512, outside an arena of 512 bytes"),
        (2, {"nbytes": 256}, "residency 2 of 'y' has 256 bytes, its buffer 512"),
        (2, {"over": 2}, "residency 2 of 'y' claims the bytes of residency 2, which does not come before it"),
        (2, {"id": 7}, "residencies are not numbered by their places"),
        (0, {"nbytes": 768}, "tick 1 (offload x) copies 768 bytes of 'x' to 512 of 'x'"),
        (4, {"host": True, "offset": 0}, "tick 3 (prefetch x) copies from the host to the host on stream h2d"),
        (3, {"nbytes": 128}, "tick 2 (forward y) has a workspace of 128 bytes, but needs 256"),
    ],
)
def test_a_residency_that_breaks_a_rule_is_named(right, rid, changes, sentence):
    schedule = replace(right, peak_bytes=2048)
    assert structural_errors(schedule) == []
    assert sentence in structural_errors(with_residency(schedule, rid, **changes))


@pytest.mark.parametrize(
    ("tick", "changes", "sentence"),
    [
        (2, {"tick": 9}, "instructions are not numbered by their places"),
        (1, {"after": (1,)}, "tick 1 (offload x) waits for tick 1, which does not come before it"),
        (1, {"after": (-1,)}, "tick 1 (offload x) waits for tick -1, which does not come before it"),
        (1, {"reads": (9,)}, "tick 1 (offload x) names residency 9, which does not exist"),
        (1, {"kind": "copy"}, "tick 1 (copy x) is neither an op nor a copy of one residency to another"),
        (1, {"writes": ()}, "tick 1 (offload x) is neither an op nor a copy of one residency to another"),
        (1, {"stream": "h2d"}, "tick 1 (offload x) copies from the device to the host on stream h2d"),
        (3, {"writes": (2,)}, "tick 3 (prefetch x) copies 512 bytes of 'x' to 512 of 'y'"),
        (2, {"what": "w"}, "tick 2 (forward w) is not an op of the graph"),
        (2, {"what": "x"}, "tick 2 (forward x) runs something else than the op of that name"),
        (2, {"stream": "d2h"}, "tick 2 (forward y) runs on stream d2h"),
        (4, {"roles": {"r0": 4}}, "tick 4 (forward z) gives the roles r0, but its kernel takes r0 r1 r2"),
        (4, {"roles": {"r0": 1, "r1": 2, "r2": 5}}, "tick 4 (forward z) finds 'x' in the host arena"),
        (4, {"roles": {"r0": 2, "r1": 2, "r2": 5}}, "tick 4 (forward z) takes 'y' for its r0, which is 'x'"),
        (4, {"reads": (4,)}, "tick 4 (forward z) is wrong about what it reads: y"),
        (4, {"writes": (5, 2)}, "tick 4 (forward z) is wrong about what it writes: y"),
        (2, {"writes": (2,)}, "tick 2 (forward y) is wrong about what it writes: y.workspace"),
    ],
)
def test_an_instruction_that_breaks_a_rule_is_named(right, tick, changes, sentence):
    assert sentence in structural_errors(with_instruction(right, tick, **changes))


@pytest.fixture(scope="module")
def staged():
    """x is made and offloaded; y stages bytes on the host, beside it."""
    net = graph(
        [buffer(name, DATA, 512) for name in "xyz"],
        [
            op("x", FORWARD, writes="x"),
            op("y", FORWARD, writes="y", host_workspace_bytes=256),
            op("z", FORWARD, "x y", "z"),
        ],
    )
    return scheduled(net, Plan("by hand", program_order(net), {Gap("x", 0): Decision.OFFLOAD}, copy_lead=0.0))


def test_a_workspace_on_the_host_is_part_of_the_host_arena(staged):
    (rid,) = (r.id for r in staged.residencies if r.buffer == "y.host_workspace")
    place = staged.residencies[rid]
    assert structural_errors(staged) == [] and staged.host_peak_bytes == 512 + 256
    assert (place.begin, place.end, place.nbytes, place.host) == (2, 3, 256, True)
    assert parse(text(staged), staged.graph, staged.plan) == staged
    for changes, sentence in (
        ({"nbytes": 128}, "tick 2 (forward y) has a workspace of 128 bytes, but needs 256"),
        ({"host": False}, "tick 2 (forward y) finds 'y.host_workspace' in the device arena"),
    ):
        assert sentence in structural_errors(with_residency(staged, rid, **changes))
    bare = replace(staged.graph.by_name["y"], host_workspace_bytes=0)
    other = replace(staged.graph, ops=tuple(bare if each.name == "y" else each for each in staged.graph.ops))
    assert other.fingerprint != staged.graph.fingerprint


def test_a_host_budget_is_less_by_the_largest_workspace(staged):
    host = HostBudget(staged.graph, Hints(host_budget_bytes=1023))
    assert host.remaining_bytes == 767 and host.reserve("x") and not host.reserve("y")
    assert HostBudget(staged.graph, Hints(host_budget_bytes=100)).is_empty
    assert HostBudget(staged.graph, Hints()).reserve("x")
