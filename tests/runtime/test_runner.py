"""A program on a device: persistent buffers in either arena, and outputs of each schedule."""

from dataclasses import replace

import numpy as np
import pytest

from layermem import ops
from layermem.backends.base import get_device
from layermem.errors import DeviceError
from layermem.graph.ops import DATA, FORWARD, HISTORY, PARAMETER, UPDATE, BandOf, Buffer, Graph, Op
from layermem.layers import Tensor
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Decision, Gap, Plan, program_order
from layermem.runtime.runner import Runner
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.ir import Residency
from tests.schedule.small_graphs import a_second_each

SHAPE = Tensor((2, 3, 4, 5))  # stored channels-last
VALUES = np.arange(120, dtype=np.float32).reshape(SHAPE.shape)


def graphs():
    """train: w goes out as `out`; then h is set to 7.  test: w goes out as `score`."""

    def out(name):
        return Op(f"{name}.forward", FORWARD, ops.CopyOut(name), "forward", {"x0": "w"}, ("w",), ())

    w, h = (Buffer(name, kind, SHAPE, 480, True) for name, kind in (("w", PARAMETER), ("h", HISTORY)))
    x = Buffer("x", DATA, SHAPE, 480)
    fills = (
        Op("x.forward", FORWARD, ops.Fill(1.0), "fill", {"y0": "x"}, (), ("x",)),
        Op("h.update", UPDATE, ops.Fill(7.0), "fill", {"y0": "h"}, (), (), ("h",)),
    )
    return [
        Graph("train", {"w": w, "h": h, "x": x}, (out("out"), *fills), "cpu"),
        Graph("test", {"w": w}, (out("score"),), "cpu"),
    ]


def runner(*offloaded, **options):
    """`offloaded` state is on the host between steps."""
    train, test = graphs()
    decisions = {Gap(name, -1): Decision.OFFLOAD for name in offloaded}
    program = Compiler(
        ArenaPlanner([train, test], a_second_each(train)), Plan("by hand", program_order(train), decisions)
    ).compile(None)
    return Runner(program, get_device("cpu"), {}, **options)


def test_a_buffer_of_some_rows_is_written_from_all_and_read_as_they_are():
    """Ranks divide the optimizer state by rows."""
    whole = Buffer("h", HISTORY, SHAPE, 480, True)
    band = Buffer("h", HISTORY, Tensor((1, 3, 4, 5)), 240, True, BandOf(whole, 1))
    fill = Op("h.update", UPDATE, ops.Fill(7.0), "fill", {"y0": "h"}, (), (), ("h",))
    graph = Graph("train", {"h": band}, (fill,), "cpu")
    program = Compiler(ArenaPlanner([graph], a_second_each(graph)), Plan("by hand", program_order(graph))).compile(None)
    made = Runner(program, get_device("cpu"), {}, poison=True)
    assert made.rows("h") == ((1, 1),) and made.shape("h") == SHAPE.shape and not made.is_whole("h")
    made.write("h", VALUES)
    assert np.array_equal(made.read("h"), VALUES[1:]) and made.view("h") is None
    assert np.array_equal(np.concatenate([*made.read_parts("h", 7)]), VALUES[1:].ravel())
    made.zero("h")
    made.write_parts("h", np.split(VALUES.ravel(), [60]))
    assert np.array_equal(made.read("h"), VALUES[1:])


@pytest.mark.parametrize("offloaded", [(), ("h",), ("w",), ("w", "h")])
def test_a_persistent_buffer_is_zero_and_then_what_was_written_wherever_it_lies(offloaded):
    made = runner(*offloaded, poison=True)
    assert not made.read("w").any() and not made.read("h").any()
    made.write("w", VALUES.ravel())  # any shape with the right count, in Caffe's order
    assert np.array_equal(made.read("w"), VALUES) and not made.read("h").any()
    assert set(made.program.persistent.host) == set(offloaded)


@pytest.mark.parametrize("offloaded", [(), ("w", "h")])
def test_state_that_a_step_changes_is_there_for_the_next_one(offloaded):
    made = runner(*offloaded, poison=True)
    made.write("w", VALUES)
    assert np.array_equal(made.run()["out"], VALUES) and set(made.read("h").ravel()) == {7.0}
    assert np.array_equal(made.run()["out"], VALUES)


def test_each_schedule_has_outputs_of_its_own_and_sees_the_same_parameters():
    made = runner("w")
    made.write("w", VALUES)
    assert {name: value.sum() for name, value in made.run(0).items()} == {"out": VALUES.sum()}
    assert {name: value.sum() for name, value in made.run(1).items()} == {"score": VALUES.sum()}


def test_the_measured_peak_is_that_of_the_program_once_it_has_run():
    made = runner()
    made.run()
    assert made.measured_peak_bytes == made.program.arena_bytes == 3 * 512


def test_a_program_with_a_residency_beyond_its_arena_is_refused():
    program = runner().program
    beyond = Residency(len(program.train.residencies), "x", 0, 1, 480, offset=4096)
    train = replace(program.train, residencies=(*program.train.residencies, beyond))
    with pytest.raises(DeviceError, match="the schedule has 'x' up to byte 4,576 of an arena of 1,536"):
        Runner(replace(program, schedules=(train, *program.schedules[1:])), get_device("cpu"), {})


def test_host_memory_is_allocated_before_the_arena(monkeypatch):
    """Pinned host memory takes some of a GPU's memory, which an arena of all free memory would not leave."""
    device, made = get_device("cpu"), []

    def noted(name, make):
        return lambda *arguments, **options: made.append(name) or make(*arguments, **options)

    for name in ("arena", "host_arena"):
        monkeypatch.setattr(device, name, noted(name, getattr(device, name)))
    Runner(runner("h").program, device, {})
    assert made == ["host_arena", "arena"]


def test_a_spilled_host_arena_holds_the_same_values(tmp_path):
    made = runner("w", spill=tmp_path)
    made.write("w", VALUES)
    assert np.array_equal(made.run()["out"], VALUES)
