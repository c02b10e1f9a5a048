"""Rules of memory and of the default stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_size_t, c_void_p

import numpy as np

from tests.emulator.rules.calls import (
    NON_BLOCKING,
    N,
    Refused,
    args,
    call,
    free_bytes,
    function,
    launch,
    memory,
    pinned,
    rule,
    stream,
)


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
