"""Rules of captures and graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import byref, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np

from tests.emulator.rules.calls import (
    GLOBAL,
    NON_BLOCKING,
    THREAD_LOCAL,
    N,
    Refused,
    args,
    call,
    context_of,
    driver,
    event,
    free_bytes,
    function,
    launch,
    memory,
    new,
    rule,
    stream,
)


def begin(mode: int = THREAD_LOCAL, flags: int = NON_BLOCKING) -> c_void_p:
    queue = stream(flags)
    call("cuStreamBeginCapture_v2", queue, mode)
    return queue


def end(queue: c_void_p) -> c_void_p:
    graph = c_void_p()
    call("cuStreamEndCapture", queue, byref(graph))
    return graph


def loaded() -> tuple[c_void_p, bytes]:
    """A kernel that was launched before, and arguments for it."""
    of, data, queue = function(), args(memory(), memory()), stream()
    launch(of, data, queue)
    call("cuStreamSynchronize", queue)
    return of, data


def captured() -> tuple[c_void_p, c_void_p]:
    """A graph of one captured launch."""
    of, data = loaded()
    queue = begin()
    launch(of, data, queue)
    graph = end(queue)
    return new("cuGraphInstantiateWithFlags", graph, c_ulonglong(0)), graph


@rule
def the_default_stream_is_captured() -> None:
    call("cuStreamBeginCapture_v2", None, THREAD_LOCAL)


@rule
def a_stream_is_captured_twice() -> None:
    call("cuStreamBeginCapture_v2", begin(), THREAD_LOCAL)


@rule
def a_capture_that_never_began_is_ended() -> None:
    end(stream())


def refused_in_capture(body: Callable[[c_void_p], None]) -> None:
    """Check that the call is refused, and the capture is lost."""
    held, queue = memory(), begin()
    try:
        body(queue)
    except Refused as refusal:
        try:
            end(queue)
        except Refused as lost:
            print(*refusal.args, end=" ")
            raise lost from None
        raise AssertionError("the capture is not lost") from None
    print("not refused", held)


@rule
def memory_is_allocated_while_capturing() -> None:
    refused_in_capture(lambda queue: call("cuMemAlloc_v2", byref(c_void_p()), c_size_t(64)))


@rule
def memory_is_pinned_while_capturing() -> None:
    refused_in_capture(lambda queue: call("cuMemHostAlloc", byref(c_void_p()), c_size_t(64), 0))


@rule
def a_module_is_loaded_while_capturing() -> None:
    refused_in_capture(lambda queue: call("cuModuleLoadData", byref(c_void_p()), Path(sys.argv[1]).read_bytes()))


@rule
def a_captured_stream_is_awaited() -> None:
    refused_in_capture(lambda queue: call("cuStreamSynchronize", queue))


@rule
def a_captured_stream_is_queried() -> None:
    refused_in_capture(lambda queue: call("cuStreamQuery", queue))


@rule
def a_captured_stream_is_destroyed() -> None:
    refused_in_capture(lambda queue: call("cuStreamDestroy_v2", queue))


@rule
def the_context_is_awaited_while_capturing() -> None:
    refused_in_capture(lambda queue: call("cuCtxSynchronize"))


@rule
def the_default_stream_is_used_while_capturing() -> None:
    held = memory()
    refused_in_capture(lambda queue: call("cuMemsetD8_v2", held, 0, c_size_t(4)))


@rule
def a_captured_event_is_queried() -> None:
    mark = event()

    def body(queue: c_void_p) -> None:
        call("cuEventRecord", mark, queue)
        call("cuEventQuery", mark)

    refused_in_capture(body)


@rule
def a_captured_event_is_awaited() -> None:
    mark = event()

    def body(queue: c_void_p) -> None:
        call("cuEventRecord", mark, queue)
        call("cuEventSynchronize", mark)

    refused_in_capture(body)


@rule
def an_event_is_destroyed_while_its_capture_is_open() -> None:
    def body(queue: c_void_p) -> None:
        mark = event()
        call("cuEventRecord", mark, queue)
        call("cuEventDestroy_v2", mark)

    refused_in_capture(body)


@rule
def an_event_from_outside_is_awaited_while_capturing() -> None:
    mark = event()
    call("cuEventRecord", mark, stream())
    refused_in_capture(lambda queue: call("cuStreamWaitEvent", queue, mark, 0))


@rule
def pageable_memory_is_copied_while_capturing() -> None:
    held, array = memory(), np.zeros(N, np.float32)
    place = array.ctypes.data_as(c_void_p)
    refused_in_capture(lambda queue: call("cuMemcpyHtoDAsync_v2", held, place, c_size_t(4), queue))


@rule
def pageable_memory_is_copied_to_while_capturing() -> None:
    held, array = memory(), np.zeros(N, np.float32)
    place = array.ctypes.data_as(c_void_p)
    refused_in_capture(lambda queue: call("cuMemcpyDtoHAsync_v2", place, held, c_size_t(4), queue))


def meanwhile(mode: int) -> None:
    """Allocate in another thread during the capture of this one."""
    from threading import Thread

    queue, found = begin(mode), []
    context = context_of(0)

    def other() -> None:
        driver.cuCtxPushCurrent_v2(context)
        found.append(driver.cuMemAlloc_v2(byref(c_void_p()), c_size_t(64)))

    thread = Thread(target=other)
    thread.start()
    thread.join()
    print(*found, end=" ")
    end(queue)


@rule
def another_thread_allocates_while_this_one_captures_for_itself() -> None:
    meanwhile(THREAD_LOCAL)


@rule
def another_thread_allocates_while_this_one_captures_for_all() -> None:
    meanwhile(GLOBAL)


@rule
def a_kernel_is_launched_first_in_a_capture() -> None:
    of, data = function(), args(memory(), memory())
    refused_in_capture(lambda queue: launch(of, data, queue))


@rule
def a_kernel_that_was_launched_before_is_captured() -> None:
    captured()


@rule
def a_graph_has_its_nodes_on_the_device() -> None:
    of, data = loaded()
    queue = begin()
    for _ in range(3):
        launch(of, data, queue)
    graph = end(queue)
    before = free_bytes()
    executable = new("cuGraphInstantiateWithFlags", graph, c_ulonglong(0))
    print(before - free_bytes(), end=" ")
    call("cuGraphExecDestroy", executable)
    assert before == free_bytes()


@rule
def a_capture_does_not_join_its_streams() -> None:
    (of, data), mark, other = loaded(), event(), stream()
    queue = begin()
    call("cuEventRecord", mark, queue)
    call("cuStreamWaitEvent", other, mark, 0)
    launch(of, data, other)
    end(queue)


@rule
def a_graph_is_destroyed_twice() -> None:
    _, graph = captured()
    call("cuGraphDestroy", graph)
    call("cuGraphDestroy", graph)


@rule
def a_destroyed_graph_is_launched() -> None:
    executable, _ = captured()
    call("cuGraphExecDestroy", executable)
    call("cuGraphLaunch", executable, stream())


@rule
def a_graph_that_was_only_captured_is_launched() -> None:
    _, graph = captured()
    call("cuGraphLaunch", graph, stream())
