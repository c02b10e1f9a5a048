"""Instructions of COMM on their own thread: order, waits, and failures."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from layermem.backends.base import Device
from layermem.backends.comm_thread import CommCalls
from layermem.distributed.loopback import Loopback, run_ranks
from layermem.errors import DeviceError
from layermem.graph.ops import COMM, COMPUTE
from layermem.schedule.ir import D2H, H2D, Instruction


def instructions(*rows: tuple[str, tuple[int, ...]], first: int = 0) -> list[Instruction]:
    """(stream, after) of each tick from `first` on."""
    return [
        Instruction(tick, stream, "", str(tick), None, {}, (), (), after)
        for tick, (stream, after) in enumerate(rows, first)
    ]


def nothing() -> None:
    pass


def comm_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "layermem-comm"]


@pytest.fixture(autouse=True)
def no_thread_is_left_behind():
    yield
    assert comm_threads() == []


def test_without_comm_or_without_a_way_to_cancel_the_calls_are_as_they_were():
    device, calls = Device(), [nothing, nothing]
    on_compute = instructions((COMPUTE, ()), (D2H, (0,)))
    assert device.order_streams(on_compute, calls, nothing) is calls
    assert device.order_streams(instructions((COMPUTE, ()), (COMM, (0,))), calls) is calls


def test_comm_runs_beside_the_others_in_its_order_and_each_waits_for_what_it_names():
    made: list[tuple[int, str]] = []
    rows = instructions(
        (COMPUTE, ()), (COMM, (0,)), (COMPUTE, ()), (COMM, (2,)), (D2H, ()), (COMPUTE, (3,)), (H2D, (4,)), (COMM, ())
    )
    calls = [lambda tick=each.tick: made.append((tick, threading.current_thread().name)) for each in rows]
    device = Device()
    ordered = device.order_streams(rows, calls, nothing)
    for _ in range(20):
        made.clear()
        device.run(ordered)
        ticks = [tick for tick, _ in made]
        assert sorted(ticks) == list(range(8))
        on_comm = [tick for tick, thread in made if thread == "layermem-comm"]
        assert on_comm == [1, 3, 7]
        assert [tick for tick in ticks if tick not in on_comm] == [0, 2, 4, 5, 6]
        position = {tick: i for i, tick in enumerate(ticks)}
        assert all(position[tick] < position[each.tick] for each in rows for tick in each.after)


def test_the_others_go_on_while_comm_waits():
    released = threading.Event()
    rows = instructions((COMM, ()), (COMPUTE, ()), (COMPUTE, (0,)))
    CommCalls(rows, [released.wait, released.set, nothing], nothing).run()


def test_a_part_of_a_schedule_begins_at_a_later_tick():
    made: list[int] = []
    rows = instructions((COMM, ()), (COMPUTE, (10,)), first=10)
    CommCalls(rows, [lambda: made.append(10), lambda: made.append(11)], nothing).run()
    assert made == [10, 11]


def test_the_calls_are_there_one_by_one():
    rows = instructions((COMM, ()), (COMPUTE, (0,)))
    calls = CommCalls(rows, [nothing, len], nothing)
    assert (len(calls), calls[1], list(calls)) == (2, len, [nothing, len])


def fail() -> None:
    raise DeviceError("of comm")


@pytest.mark.parametrize("after", [(), (0,)])
def test_an_error_of_comm_is_raised_in_the_caller_and_ends_the_step(after):
    made = []
    rows = instructions((COMM, ()), (COMPUTE, (0,)), (COMM, ()), (COMPUTE, after))
    calls = [fail, lambda: made.append(1), lambda: made.append(2), lambda: made.append(3)]
    with pytest.raises(DeviceError, match="of comm"):
        CommCalls(rows, calls, nothing).run()
    assert made == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("of compute")])
def test_an_error_of_the_caller_cancels_comm_and_joins_it(error):
    cancelled, made = threading.Event(), []

    def interrupt() -> None:
        raise error

    rows = instructions((COMM, ()), (COMPUTE, ()), (COMM, ()))
    calls = [lambda: cancelled.wait(30), interrupt, lambda: made.append(2)]
    with pytest.raises(error if isinstance(error, type) else type(error)):
        CommCalls(rows, calls, cancelled.set).run()
    assert cancelled.is_set() and made == []


@pytest.mark.parametrize("waits", [True, False])
def test_ctrl_c_while_the_caller_waits_ends_the_step(waits):
    """The signal comes during the wait of an instruction, and at the end of the step."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    cancelled = threading.Event()

    def wait() -> None:
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        cancelled.wait(30)

    rows = instructions((COMM, ()), (COMPUTE, (0,) if waits else ()))
    with pytest.raises(KeyboardInterrupt):
        CommCalls(rows, [wait, nothing], cancelled.set).run()
    assert cancelled.is_set()


def test_a_rank_that_fails_in_its_step_ends_the_steps_of_all():
    def step(transport: Loopback) -> None:
        got = np.zeros(1, np.float32)
        span = got.ctypes.data, got.nbytes

        def receive() -> None:
            transport.exchange([], [(1 - transport.rank, [span])]).wait()

        def compute() -> None:
            if transport.rank == 1:
                raise ValueError("rank 1")

        CommCalls(instructions((COMM, ()), (COMPUTE, ())), [receive, compute], transport.cancel).run()

    with pytest.raises(ValueError, match="rank 1"):
        run_ranks(2, step)


def test_a_step_may_fail_and_the_next_one_run():
    errors = [DeviceError("once")]

    def sometimes() -> None:
        if errors:
            raise errors.pop()

    ordered = CommCalls(instructions((COMM, ()), (COMPUTE, (0,))), [sometimes, nothing], nothing)
    with pytest.raises(DeviceError, match="once"):
        ordered.run()
    ordered.run()
