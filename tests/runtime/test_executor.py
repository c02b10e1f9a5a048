"""Bound schedules: ops on views of the arena, copies between the arenas, and NaN where a residency has ended."""

import threading
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from layermem import ops
from layermem.backends.arena import Arena
from layermem.backends.base import Device, get_device
from layermem.distributed.loopback import Loopback, Network
from layermem.errors import DeviceError
from layermem.graph.ops import BACKWARD, COMM, DATA, FORWARD, Buffer, BufferOverlay, Graph, Op
from layermem.layers import Tensor
from layermem.ops import BatchSlice
from layermem.planning.plan import REUSE, Decision, Gap, Plan, program_order
from layermem.runtime.executor import Executor
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from tests.schedule.small_graphs import a_second_each

SHAPE = Tensor((64,))  # 256 bytes of float32
VALUES = np.arange(64, dtype=np.float32)


@pytest.fixture
def device():
    return get_device("cpu")


def graph():
    """feed -> x; y = fill 3; z = fill 5; a copy of x goes out at the end."""

    def fill(name, value):
        return Op(f"{name}.forward", FORWARD, ops.Fill(value), "fill", {"y0": name}, (), (name,))

    return Graph(
        "by hand",
        {name: Buffer(name, DATA, SHAPE, 256) for name in "xyz"},
        (
            Op("x.forward", FORWARD, ops.Feed("x", 1), "forward", {"y0": "x"}, (), ("x",)),
            fill("y", 3.0),
            fill("z", 5.0),
            Op("x.output", BACKWARD, ops.CopyOut("x"), "forward", {"x0": "x"}, ("x",), ()),
        ),
        "cpu",
    )


def executed(device, plan=None, *, poison=False, steps=1):
    net = graph()
    plan = plan or Plan("by hand", program_order(net))
    schedule = place(lower(Layout(net, a_second_each(net)), plan))
    arena = Arena(schedule.peak_bytes, poison=poison)
    host = Arena(schedule.host_peak_bytes, poison=poison)
    context = {"batch": {"x": [VALUES]}, "results": {}}
    executor = Executor(schedule, device, arena, host, context, poison=poison)
    for _ in range(steps):
        executor.run()
    return executor, context["results"]


def value_at(executor, buffer):
    """The contents of the (last) residency of `buffer` after the step."""
    r = [r for r in executor.schedule.residencies if r.buffer == buffer][-1]
    return (executor.host if r.host else executor.arena).view(r.offset, SHAPE)


def test_every_op_writes_at_the_offset_of_its_residency(device):
    """x lives throughout; y and z follow each other on the same 256 bytes, and z is there at the end."""
    executor, results = executed(device)
    assert np.array_equal(results["x"], VALUES)
    assert np.array_equal(value_at(executor, "x"), VALUES) and set(value_at(executor, "z")) == {5.0}
    assert executor.schedule.peak_bytes == 512


def test_an_offloaded_buffer_leaves_its_bytes_to_others_and_comes_back_whole(device):
    plan = Plan("by hand", program_order(graph()), {Gap("x", 0): Decision.OFFLOAD}, copy_lead=0.0)
    executor, results = executed(device, plan)
    assert executor.schedule.peak_bytes == 256  # x, y, z and x again share them
    assert np.array_equal(results["x"], VALUES)
    assert np.array_equal(executor.host.view(0, SHAPE), VALUES)


def test_a_schedule_runs_again_and_again_on_the_same_bytes(device):
    assert np.array_equal(executed(device, steps=3)[1]["x"], VALUES)


def test_with_poison_bytes_hold_nan_from_the_tick_at_which_their_residency_ends(device):
    """y ends where z begins, before z is written; both are gone before the last op, and x is not."""
    executor, results = executed(device, poison=True)
    assert np.isnan(value_at(executor, "z")).all() and np.array_equal(results["x"], VALUES)


class Adding(Device):
    """A device whose only kernel adds one to its input, and which records the bound arrays."""

    def __init__(self):
        self.bound = {}

    def bind(self, op, arrays, context):
        self.bound[op.name] = {role: (array.dtype, array.size) for role, array in arrays.items()}

        def run():
            arrays["y"][...] = arrays["x"] + 1 if "x" in arrays else 1

        return run


def adding(name, reads="", **more):
    roles = {"y": name, **({"x": reads} if reads else {})}
    return Op(name, FORWARD, ops.Silence(), "run", roles, tuple(reads.split()), (name,), **more)


def run_adding(*adders, poison=False, buffers=None, device=None):
    device, names = device or Adding(), buffers or [each.name for each in adders]
    net = Graph("adding", {name: Buffer(name, DATA, SHAPE, 256) for name in names}, adders, "cpu")
    plan = Plan("by hand", program_order(net), overlays=REUSE)
    schedule = place(lower(Layout(net, a_second_each(net)), plan))
    executor = Executor(schedule, device, Arena(schedule.peak_bytes, poison=poison), Arena(0), {}, poison=poison)
    executor.run()
    return device, executor


def test_bytes_that_live_on_under_another_name_are_not_poisoned():
    """b takes the bytes of a over where it reads them, and c those of b."""
    overlaid = [adding(y, x, overlays=(BufferOverlay(y, x, "forward"),)) for x, y in ("ab", "bc")]
    _, executor = run_adding(adding("a"), *overlaid, poison=True)
    assert executor.schedule.peak_bytes == 256 and set(value_at(executor, "c")) == {3.0}


def test_an_op_with_a_view_is_bound_to_the_rows_of_its_items():
    """a fills the second half of y, b the first; c reads all of it."""
    halves = BatchSlice(32, 32, 64), BatchSlice(0, 32, 64)
    ops_ = [
        adding("a", views={"y": halves[0]}),
        Op("b", FORWARD, ops.Silence(), "run", {"y": "a"}, (), (), ("a",), views={"y": halves[1]}),
        adding("c", "a"),
    ]
    device, executor = run_adding(*ops_, poison=True, buffers="ac")
    assert device.bound["a"] == device.bound["b"] == {"y": (np.float32, 32)}
    assert set(value_at(executor, "c")) == {2.0}


def test_bytes_beside_a_view_are_watched():
    class Careless(Adding):
        def bind(self, op, arrays, context):
            view = arrays["y"]
            whole = np.lib.stride_tricks.as_strided(view, (64,), view.strides)
            return lambda: whole.fill(1)

    first = adding("a", views={"y": BatchSlice(0, 32, 64)})
    second = Op("b", FORWARD, ops.Silence(), "run", {"y": "a"}, (), (), ("a",), views={"y": BatchSlice(32, 32, 64)})
    with pytest.raises(DeviceError, match="a writes outside 'a'"):
        run_adding(first, second, poison=True, buffers="a", device=Careless())


def test_a_workspace_is_bound_as_bytes():
    device, _ = run_adding(adding("a", workspace_bytes=300))
    assert device.bound == {"a": {"y": (np.float32, 64), "workspace": (np.uint8, 300)}}


@pytest.mark.parametrize("poison", [False, True])
def test_communication_runs_beside_the_step_but_in_its_turn_where_bytes_are_watched(device, poison):
    net = graph()
    threads = []
    context = {"batch": {"x": [VALUES]}, "results": {}, "transport": Loopback(Network(1), 0, Random(0))}
    schedule = place(lower(Layout(net, a_second_each(net)), Plan("by hand", program_order(net))))
    instructions = tuple(
        each._replace(stream=COMM) if each.what == "y.forward" else each for each in schedule.instructions
    )
    assert len({each.stream for each in instructions}) == 2
    arena, host = Arena(schedule.peak_bytes, poison=poison), Arena(schedule.host_peak_bytes)

    class Watching(type(device)):
        def bind(self, op, arrays, context):
            call = super().bind(op, arrays, context)

            def watched():
                threads.append((op.name, threading.current_thread() is threading.main_thread()))
                call()

            return watched

    Executor(replace(schedule, instructions=instructions), Watching(), arena, host, context, poison=poison).run()
    assert dict(threads) == {"x.forward": True, "y.forward": poison, "z.forward": True, "x.output": True}
    np.testing.assert_array_equal(context["results"]["x"], VALUES)
