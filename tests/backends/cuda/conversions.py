"""Conversions between fp32 and 16 bits, on arrays that begin behind an address of an arena."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layermem.backends.cuda.support.half import narrow, widen
from layermem.backends.cuda.support.launch import Launch
from tests.backends.cuda.harness import CONTEXT, PLAIN, Memory, Way
from tests.emulator import emulate

Convert = Callable[[int, int, int, str], Launch]


def run(convert: Convert, y: np.ndarray, x: np.ndarray, count: int, begin: int, dtype: str, way: Way) -> None:
    """y = x from element `begin` on."""
    buffers = {"y": y, "x": x}
    places = way.gpu.placed(buffers) if way.gpu else {role: array.ctypes.data for role, array in buffers.items()}
    launch = convert(places["y"] + begin * y.itemsize, places["x"] + begin * x.itemsize, count, dtype)
    if way.gpu:
        way.gpu.launch(launch, CONTEXT)
        way.gpu.bring_back()
        return
    kernels = emulate.load(f"cuda/{launch.module}.cu", way.mode, order=way.order, copies=way.copies)
    kernels.launch(launch.function, launch.grid, launch.block, launch.packed(CONTEXT), launch.shared, buffers=[x, y])


def run_widen(source: np.ndarray, dtype: str, begin: int = 0, way: Way = PLAIN) -> np.ndarray:
    """Of an array of bits; both sides lie `begin` elements behind an address of an arena."""
    memory, count = Memory(), len(source)
    x, y = memory.bytes(2 * (count + begin)).view(np.uint16), memory.bytes(4 * (count + begin)).view(np.float32)
    x[begin:] = source
    run(widen, y, x, count, begin, dtype, way)
    memory.check()
    assert (y[:begin].view(np.uint32) == 0xFFFFFFFF).all()
    return y[begin:]


def run_narrow(source: np.ndarray, dtype: str, begin: int = 0, way: Way = PLAIN) -> np.ndarray:
    memory, count = Memory(), len(source)
    x, y = memory.bytes(4 * (count + begin)).view(np.float32), memory.bytes(2 * (count + begin)).view(np.uint16)
    x[begin:] = source
    run(narrow, y, x, count, begin, dtype, way)
    memory.check()
    assert (y[:begin] == 0xFFFF).all()
    return y[begin:]
