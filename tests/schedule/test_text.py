"""Schedules as text: format, reading back, and errors of lines."""

import random
from dataclasses import replace

import pytest

from layermem.errors import InputError
from layermem.graph.ops import DATA, FORWARD
from layermem.planning.plan import Plan, program_order
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.text import format_offset, instruction_text, parse, parse_offset, text
from tests.schedule.random_graphs import random_costs, random_graph, random_plan
from tests.schedule.small_graphs import buffer, graph, op, scheduled, small_graph, small_plan

SMALL = """\
# small train   strategy by hand   peak 2.5K   max live 2.5K   host 1K
tick stream  op        what       reads            writes                         after
   0 compute forward   x.forward                   x@1K
   1 compute forward   a.forward  x@1K w@0         a@1.5K a.forward.workspace@512
   2 d2h     offload   x          x@1K             host@0                         0
   3 compute forward   b.forward  a@1.5K           b@1.5K
   4 h2d     prefetch  x          host@0           x@512                          1 2
   5 compute forward   b.output   b@1.5K
   6 compute backward  b.seed                      b.diff@1K                      2
   7 compute recompute a.forward  x@512 w@0        a@1.5K a.forward.workspace@2K  4
   8 compute recompute b.forward  a@1.5K           b@1.5K
   9 h2d     prefetch  h          host@512         h@2K                           7
  10 compute backward  b.backward b@1.5K b.diff@1K a.diff@1K
  11 compute backward  a.weights  x@512 a.diff@1K  w.diff@1.5K
  12 compute update    w.update   w.diff@1.5K      w@0 h@2K                       9
  13 d2h     offload   h          h@2K             host@512                       12
"""
RESIDENCIES = """\
# residencies
id buffer              arena  offset bytes ticks   over
 0 x                   device     1K   512 [0,6)
 1 w                   device      0   512 [0,14)
 2 a                   device   1.5K   512 [1,4)
 3 a.forward.workspace device    512   300 [1,2)
 4 x                   host        0   512 [2,8)
 5 b                   device   1.5K   512 [3,6)   2
"""


@pytest.fixture(scope="module")
def small():
    return scheduled(small_graph(), small_plan())


def test_a_schedule_has_a_line_for_every_instruction_and_every_residency(small):
    assert instruction_text(small) == SMALL
    assert text(small).startswith(SMALL + RESIDENCIES)
    assert len(text(small).splitlines()) == 2 + len(small.instructions) + 2 + len(small.residencies)


FOLDED = """\
# small train
#   strategy by hand
#   peak 2.5K
#   max live 2.5K
#   host 1K
tick stream  op        what
   0 compute forward   x.forward
     writes  x@1K
   1 compute forward   a.forward
     reads   x@1K w@0
     writes  a@1.5K
             a.forward.workspace@512
   2 d2h     offload   x
     reads   x@1K
     writes  host@0
     after   0
"""


def test_instructions_wider_than_the_terminal_are_folded(small):
    assert instruction_text(small, 38).startswith(FOLDED)
    assert max(map(len, instruction_text(small, 38).splitlines())) <= 38
    widest = max(map(len, SMALL.splitlines()))
    assert instruction_text(small, widest) == SMALL != instruction_text(small, widest - 1)


@pytest.mark.parametrize("width", [1, 38, 60])
def test_folded_instructions_read_back_as_they_were(small, width):
    residencies = text(small).removeprefix(instruction_text(small))
    assert parse(instruction_text(small, width) + residencies, small.graph, small.plan) == small


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x@1K w@0\n", "x@2K w@0\n", ":9: .*0 residencies are 'x@2K' at tick 1"),
        ("     reads   x@1K w@0", "     needs   x@1K w@0", ":9: .*'needs'"),
    ],
)
def test_a_folded_line_that_does_not_read_is_named(small, old, new, message):
    broken = text(small).replace(SMALL, instruction_text(small, 38)).replace(old, new, 1)
    with pytest.raises(InputError, match=rf"^small.sched{message}"):
        parse(broken, small.graph, path="small.sched")


@pytest.mark.parametrize("block", range(4))
def test_a_written_schedule_reads_back_as_it_was(block):
    for seed in range(block * 50, block * 50 + 50):
        rng = random.Random(seed)
        net = random_graph(rng, rng.randint(1, 10))
        plan = random_plan(rng, net)
        schedule = place(lower(Layout(net, random_costs(rng, net)), plan), step_seconds=0.0)
        assert parse(text(schedule), net, plan) == schedule, seed


def test_without_a_plan_there_is_one_with_its_strategy_and_order(small):
    read = parse(text(small), small.graph)
    assert (read.plan.strategy, read.plan.order, read.plan.decisions) == ("by hand", small_plan().order, {})
    assert replace(read, plan=small.plan) == small


def test_names_that_would_be_misread_are_escaped():
    """White space splits cells, % begins an escape, and host is the name of the host arena."""
    names = ["my layer", "100%", "host", "x#3", "tab\there", "a@b"]
    ops = [replace(op(f"{name}.forward", FORWARD), writes=(name,), roles={"r0": name}) for name in names]
    net = graph([buffer(name, DATA, 256) for name in names], ops)
    schedule = scheduled(net, Plan("by hand", program_order(net)))
    assert "my%20layer@0" in text(schedule) and "100%25@0" in text(schedule) and "%68ost@0" in text(schedule)
    assert parse(text(schedule), net, schedule.plan) == schedule


def test_a_place_that_two_residencies_share_is_told_apart_by_its_id(small):
    """No safe schedule has such a place, but an unsafe one must be written too."""
    first, second = (r.id for r in small.residencies if r.buffer == "x" and not r.host)
    residencies = list(small.residencies)
    residencies[second] = residencies[second]._replace(begin=0, offset=residencies[first].offset)
    twice = replace(small, residencies=tuple(residencies))
    assert f"x@1K#{first}" in text(twice)
    assert parse(text(twice), small.graph, small.plan) == twice


@pytest.mark.parametrize(
    ("nbytes", "written"),
    [
        (0, "0"),
        (256, "256"),
        (300, "300"),
        (1024, "1K"),
        (1280, "1.25K"),
        (1310720, "1.25M"),
        (261120, "255K"),
        (2**30, "1G"),
        (2**30 + 256, "1048576.25K"),
        (2**30 + 1, "1073741825"),
        (-256, "-256"),
    ],
)
def test_offsets_are_exact_in_the_largest_unit_of_whole_quarters(nbytes, written):
    assert format_offset(nbytes) == written and parse_offset(written) == nbytes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("op        what", "verb      what", ":2: is not part of .*the headings should be tick stream op"),
        ("compute forward   a.forward ", "compute forward   c.forward ", ":4: .*'c.forward'"),
        ("x@1K w@0         a@1.5K", "x@2K w@0         a@1.5K", ":4: .*0 residencies are 'x@2K' at tick 1"),
        ("compute forward   b.output ", "compute recompute b.output ", ":8: .*cannot be recomputed"),
        ("x                   host        0   512 [2,8)", "x                   host        0   many [2,8)", ":23: "),
        ("   2 d2h     offload   x          x@1K", "   2 d2h     offload   x          x", ":5: "),
        ("peak 2.5K", "peak high", ":1: "),
        ("   1 compute forward   a.forward ", "     compute forward   a.forward ", ":4: "),
    ],
    ids=["headings", "op", "offset", "recompute", "bytes", "place", "peak", "tick"],
)
def test_a_line_that_does_not_read_is_named(small, old, new, message):
    broken = text(small).replace(old, new)
    assert broken != text(small)
    with pytest.raises(InputError, match=rf"^small.sched{message}"):
        parse(broken, small.graph, path="small.sched")


@pytest.mark.parametrize("source", ["", "nothing\n", SMALL])
def test_a_truncated_schedule_is_refused(small, source):
    with pytest.raises(InputError, match="is not part of a schedule"):
        parse(source, small.graph)
