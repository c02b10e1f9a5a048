"""Rules of contexts and processes."""

from __future__ import annotations

import os
import sys
from ctypes import byref, c_size_t, c_void_p

from tests.emulator.rules.calls import args, call, context_of, driver, event, function, launch, memory, rule, stream


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
