"""Makes calls that a driver refuses: python rules.py <image of kernels/elementwise.cu> <shared memory of a block>
<name>..

Prints a line for each name with the result of its calls: `ok` or the number of the error.  Each has its own process and
driver.  Handles are raw, so that no wrapper guards them.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import pycuda.driver  # noqa: F401  (loads the driver's library)

N = 64
GLOBAL, THREAD_LOCAL, NON_BLOCKING, UNTIMED = 0, 1, 1, 2
DYNAMIC, CARVEOUT, STATIC, REGISTERS = 8, 9, 1, 4
driver = ctypes.CDLL("libcuda.so.1")
driver.cuCtxPushCurrent_v2.argtypes = [c_void_p]


class Refused(Exception):
    """The number of the error of a call."""


def call(name: str, *arguments: object) -> None:
    status = getattr(driver, name)(*arguments)
    if status:
        raise Refused(status)


def new(name: str, *arguments: object) -> c_void_p:
    handle = c_void_p()
    call(name, byref(handle), *arguments)
    return handle


def context_of(device: int) -> c_void_p:
    return new("cuDevicePrimaryCtxRetain", device)


def stream(flags: int = NON_BLOCKING) -> c_void_p:
    return new("cuStreamCreate", flags)


def event(flags: int = UNTIMED) -> c_void_p:
    return new("cuEventCreate", flags)


def memory(nbytes: int = 4 * N) -> c_void_p:
    return new("cuMemAlloc_v2", c_size_t(nbytes))


def pinned(nbytes: int = 4 * N, flags: int = 0) -> c_void_p:
    return new("cuMemHostAlloc", c_size_t(nbytes), flags)


def function(name: bytes = b"scale_add") -> c_void_p:
    return new("cuModuleGetFunction", new("cuModuleLoadData", Path(sys.argv[1]).read_bytes()), name)


def args(y: c_void_p, x: c_void_p, count: int = N) -> bytes:
    return struct.pack("PPPif", y.value or 0, x.value or 0, 0, count, 2.0)


def launch(
    of: c_void_p,
    data: bytes,
    queue: c_void_p | None = None,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (64, 1, 1),
    shared: int = 0,
    both: bool = False,
) -> None:
    text, size = ctypes.create_string_buffer(data, len(data)), c_size_t(len(data))
    extra = (c_void_p * 5)(1, ctypes.addressof(text), 2, ctypes.addressof(size), None)
    parameters = (c_void_p * 1)(ctypes.addressof(text)) if both else None
    call("cuLaunchKernel", of, *grid, *block, shared, queue, parameters, extra)


RULES: dict[str, Callable[[], None]] = {}


def rule(body: Callable[[], None]) -> Callable[[], None]:
    RULES[body.__name__] = body
    return body


# -- memory ------------------------------------------------------------------------------------------------------------


@rule
def nothing_is_allocated() -> None:
    memory(0)


@rule
def nothing_is_pinned() -> None:
    pinned(0)


@rule
def more_is_pinned_than_the_host_has() -> None:
    pinned(1 << 20)


@rule
def pinned_memory_has_an_unknown_flag() -> None:
    pinned(flags=8)


def free_bytes() -> int:
    free, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value


@rule
def pinned_memory_has_page_tables_on_the_device() -> None:
    before = free_bytes()
    held = pinned(1 << 20)
    print(before - free_bytes(), end=" ")
    call("cuMemFreeHost", held)
    assert before == free_bytes()


@rule
def memory_that_other_processes_have_is_not_free() -> None:
    print(free_bytes(), end=" ")
    memory(free_bytes() + 1)


@rule
def memory_is_freed_twice() -> None:
    held = memory()
    call("cuMemFree_v2", held)
    call("cuMemFree_v2", held)


@rule
def pinned_memory_is_freed_twice() -> None:
    held = pinned()
    call("cuMemFreeHost", held)
    call("cuMemFreeHost", held)


@rule
def freed_memory_is_copied() -> None:
    held = memory()
    call("cuMemFree_v2", held)
    call("cuMemcpyHtoD_v2", held, np.zeros(N, np.float32).ctypes.data_as(c_void_p), c_size_t(4))


@rule
def freed_pinned_memory_is_copied() -> None:
    held = pinned()
    call("cuMemFreeHost", held)
    call("cuMemcpyHtoDAsync_v2", memory(), held, c_size_t(4), stream())


@rule
def a_kernel_uses_freed_memory() -> None:
    of, x, y, queue = function(), memory(), memory(), stream()
    call("cuMemFree_v2", x)
    launch(of, args(y, x), queue)
    call("cuStreamSynchronize", queue)


@rule
def a_kernel_leaves_its_memory() -> None:
    of, queue = function(), stream()
    launch(of, args(memory(1 << 20), memory(), 5000), queue, grid=(20, 1, 1), block=(256, 1, 1))
    call("cuStreamSynchronize", queue)


@rule
def after_an_illegal_address_nothing_works() -> None:
    try:
        a_kernel_leaves_its_memory()
    except Refused:
        memory()


@rule
def after_a_refused_launch_all_works() -> None:
    try:
        launch(function(), args(memory(), memory()), grid=(0, 1, 1))
    except Refused:
        memory()


# -- the default stream ------------------------------------------------------------------------------------------------


def seen_behind(body: Callable[[c_void_p], object], flags: int = NON_BLOCKING) -> None:
    """Print the byte (1 before) that a copy on another stream reads after a call that sets it to 2."""
    to, host, queue = memory(), pinned(), stream(flags)
    call("cuMemsetD8_v2", to, 1, c_size_t(4))
    call("cuCtxSynchronize")
    body(to)
    call("cuMemcpyDtoHAsync_v2", host, to, c_size_t(4), queue)
    call("cuStreamSynchronize", queue)
    print(ctypes.string_at(host.value or 0, 1)[0], end=" ")


def fill(to: c_void_p) -> None:
    call("cuMemsetD8_v2", to, 2, c_size_t(4))


def write(to: c_void_p) -> None:
    call("cuMemcpyHtoD_v2", to, np.full(4, 2, np.uint8).ctypes.data_as(c_void_p), c_size_t(4))


@rule
def a_fill_is_not_awaited_by_another_stream() -> None:
    seen_behind(fill)


@rule
def a_copy_of_pageable_memory_is_not_awaited_by_another_stream() -> None:
    seen_behind(write)


@rule
def a_copy_on_the_device_is_not_awaited_by_another_stream() -> None:
    other = memory()
    fill(other)
    seen_behind(lambda to: call("cuMemcpyDtoD_v2", to, other, c_size_t(4)))


@rule
def a_fill_is_done_once_the_context_was_awaited() -> None:
    def body(to: c_void_p) -> None:
        fill(to)
        call("cuCtxSynchronize")

    seen_behind(body)


@rule
def a_copy_of_pinned_memory_is_done_on_return() -> None:
    host = pinned()
    ctypes.memset(host, 2, 4)
    seen_behind(lambda to: call("cuMemcpyHtoD_v2", to, host, c_size_t(4)))


@rule
def a_blocking_stream_follows_the_default_one() -> None:
    seen_behind(fill, flags=0)


# -- streams and events ------------------------------------------------------------------------------------------------


@rule
def a_stream_that_is_none() -> None:
    call("cuStreamSynchronize", c_void_p(12345))


@rule
def a_stream_is_used_after_it_was_destroyed() -> None:
    queue = stream()
    call("cuStreamDestroy_v2", queue)
    call("cuEventRecord", event(), queue)


@rule
def a_stream_is_destroyed_twice() -> None:
    queue = stream()
    call("cuStreamDestroy_v2", queue)
    call("cuStreamDestroy_v2", queue)


@rule
def the_default_stream_is_destroyed() -> None:
    call("cuStreamDestroy_v2", None)


@rule
def a_stream_has_an_unknown_flag() -> None:
    stream(4)


@rule
def an_event_has_an_unknown_flag() -> None:
    event(8)


@rule
def an_event_that_is_none() -> None:
    call("cuEventRecord", None, stream())


@rule
def an_event_is_recorded_after_it_was_destroyed() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuEventRecord", mark, stream())


@rule
def an_event_is_awaited_after_it_was_destroyed() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuStreamWaitEvent", stream(), mark, 0)


@rule
def an_event_is_queried_after_it_was_destroyed() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuEventQuery", mark)


@rule
def an_event_is_destroyed_twice() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuEventDestroy_v2", mark)


@rule
def an_event_may_be_destroyed_before_it_is_reached() -> None:
    mark, queue, other = event(), stream(), stream()
    call("cuEventRecord", mark, queue)
    call("cuStreamWaitEvent", other, mark, 0)
    call("cuEventDestroy_v2", mark)
    call("cuStreamSynchronize", other)


def elapsed(begin: c_void_p, end: c_void_p) -> None:
    call("cuEventElapsedTime", byref(c_float()), begin, end)


@rule
def time_between_events_of_which_one_was_not_recorded() -> None:
    begin, queue = event(0), stream()
    call("cuEventRecord", begin, queue)
    call("cuStreamSynchronize", queue)
    elapsed(begin, event(0))


@rule
def time_between_events_that_have_none() -> None:
    begin, queue = event(UNTIMED), stream()
    call("cuEventRecord", begin, queue)
    call("cuStreamSynchronize", queue)
    elapsed(begin, begin)


@rule
def time_between_events_that_are_not_reached() -> None:
    begin, queue = event(0), stream()
    call("cuEventRecord", begin, queue)
    elapsed(begin, begin)


# -- kernels -----------------------------------------------------------------------------------------------------------


@rule
def a_kernel_that_is_none() -> None:
    launch(c_void_p(12345), b"")


@rule
def a_kernel_of_an_unloaded_module() -> None:
    module = new("cuModuleLoadData", Path(sys.argv[1]).read_bytes())
    of = new("cuModuleGetFunction", module, b"scale_add")
    call("cuModuleUnload", module)
    launch(of, args(memory(), memory()))


@rule
def a_kernel_that_the_module_does_not_have() -> None:
    function(b"no_such_kernel")


@rule
def a_variable_that_the_module_does_not_have() -> None:
    module = new("cuModuleLoadData", Path(sys.argv[1]).read_bytes())
    call("cuModuleGetGlobal_v2", byref(c_void_p()), byref(c_size_t()), module, b"no_such_variable")


@rule
def a_module_has_its_image_on_the_device() -> None:
    image, before = Path(sys.argv[1]).read_bytes(), free_bytes()
    module = new("cuModuleLoadData", image)
    assert before - free_bytes() == len(image)
    call("cuModuleUnload", module)
    assert before == free_bytes()
    print("all", end=" ")


@rule
def an_image_is_larger_than_the_device() -> None:
    function()


@rule
def machine_code_of_a_newer_toolkit() -> None:
    function()


@rule
def ptx_of_a_newer_toolkit() -> None:
    new("cuModuleLoadData", b".version 8.5\n.target sm_80\n" + bytes(64))


@rule
def ptx_of_the_toolkit_of_the_driver() -> None:
    new("cuModuleLoadData", b".version 8.4\n.target sm_80\n" + bytes(64))


@rule
def more_threads_than_the_kernel_declares() -> None:
    launch(function(), args(memory(), memory()), block=(512, 1, 1))


@rule
def more_threads_along_z_than_any_gpu_takes() -> None:
    launch(function(), args(memory(), memory()), block=(1, 1, 65))


@rule
def more_registers_than_a_multiprocessor_has() -> None:
    launch(function(), args(memory(), memory()), block=(256, 1, 1))


@rule
def an_empty_grid() -> None:
    launch(function(), args(memory(), memory()), grid=(1, 0, 1))


@rule
def a_grid_too_large_along_y() -> None:
    launch(function(), args(memory(), memory()), grid=(1, 65536, 1))


@rule
def a_grid_too_large_along_z() -> None:
    launch(function(), args(memory(), memory()), grid=(1, 1, 65536))


@rule
def arguments_of_another_size() -> None:
    launch(function(), args(memory(), memory())[:-4])


@rule
def arguments_given_twice() -> None:
    launch(function(), args(memory(), memory()), both=True)


@rule
def dynamic_shared_memory_of_48_kib_beside_static() -> None:
    launch(function(), args(memory(), memory()), shared=48 << 10)


@rule
def dynamic_shared_memory_beyond_its_opt_in() -> None:
    of = function()
    call("cuFuncSetAttribute", of, DYNAMIC, 50_000)
    launch(of, args(memory(), memory()), shared=50_001)


def opt_in(total: int) -> None:
    """Use all of a block's shared memory, including the kernel's static bytes, in a launch."""
    of, static = function(), c_int()
    call("cuFuncGetAttribute", byref(static), STATIC, of)
    call("cuFuncSetAttribute", of, DYNAMIC, total - static.value)
    launch(of, args(memory(), memory()), shared=total - static.value)


@rule
def all_shared_memory_of_a_block() -> None:
    opt_in(int(sys.argv[2]))


@rule
def a_byte_more_shared_memory_than_a_block_has() -> None:
    opt_in(int(sys.argv[2]) + 1)


@rule
def a_carveout_beyond_100_percent() -> None:
    call("cuFuncSetAttribute", function(), CARVEOUT, 101)


@rule
def an_attribute_that_cannot_be_set() -> None:
    call("cuFuncSetAttribute", function(), REGISTERS, 32)


# -- capture and graphs ------------------------------------------------------------------------------------------------


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


# -- contexts ----------------------------------------------------------------------------------------------------------


@rule
def a_context_that_is_none() -> None:
    call("cuCtxPushCurrent_v2", c_void_p(12345))


@rule
def more_contexts_are_popped_than_pushed() -> None:
    call("cuCtxPopCurrent_v2", byref(c_void_p()))
    call("cuCtxPopCurrent_v2", byref(c_void_p()))


@rule
def a_call_without_a_context() -> None:
    call("cuCtxPopCurrent_v2", byref(c_void_p()))
    memory()


def in_another_context() -> None:
    call("cuCtxPushCurrent_v2", context_of(1))


@rule
def a_stream_of_another_context() -> None:
    queue, held = stream(), memory()
    in_another_context()
    call("cuMemsetD8Async", held, 0, c_size_t(4), queue)


@rule
def a_kernel_of_another_context() -> None:
    of, data = function(), args(memory(), memory())
    in_another_context()
    launch(of, data, stream())


@rule
def an_event_of_another_context_is_recorded() -> None:
    mark = event()
    in_another_context()
    call("cuEventRecord", mark, stream())


@rule
def an_event_of_another_context_is_awaited() -> None:
    mark = event()
    call("cuEventRecord", mark, stream())
    in_another_context()
    call("cuStreamWaitEvent", stream(), mark, 0)


@rule
def memory_of_each_device_is_its_own() -> None:
    memory(600)
    in_another_context()
    memory(600)


# -- processes ---------------------------------------------------------------------------------------------------------


@rule
def a_device_that_another_process_has_alone() -> None:
    """Making the context fails, before any rule applies."""


@rule
def a_copy_of_the_process_calls_the_driver() -> None:
    sys.stdout.flush()
    if not os.fork():
        os._exit(driver.cuMemAlloc_v2(byref(c_void_p()), c_size_t(64)))
    print(os.waitstatus_to_exitcode(os.wait()[1]), end=" ")


@rule
def a_copy_of_the_process_begins_anew() -> None:
    sys.stdout.flush()
    if not os.fork():
        os._exit(driver.cuInit(0))
    print(os.waitstatus_to_exitcode(os.wait()[1]), end=" ")


def outcome(name: str) -> str:
    driver.cuInit(0)
    try:
        call("cuCtxPushCurrent_v2", context_of(0))
        RULES[name]()
    except Refused as error:
        return str(*error.args)
    return "ok"


def main() -> None:
    for name in sys.argv[3:]:
        sys.stdout.flush()
        if not (child := os.fork()):
            print(outcome(name), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(f"ended with {status}")


if __name__ == "__main__":
    main()
