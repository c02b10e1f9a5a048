"""Calls of a driver by raw handles, so that no wrapper guards them, and the list of rules."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from ctypes import byref, c_size_t, c_void_p
from pathlib import Path

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


def free_bytes() -> int:
    free, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value


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
