"""Captures a fork and a join of three streams into a graph and launches it: streams by PyCUDA, graphs by ctypes.

    python graph.py <image> <launches> [<part to leave out: fork, join or order; or free: what is freed meanwhile>]
prints the launches that gave a wrong result, or what the driver answered to the capture
"""

import ctypes
import struct
import sys
from pathlib import Path
from typing import SupportsInt

import numpy as np
import pycuda.driver as cuda

N = 100
image, launches = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
missing = sys.argv[3] if len(sys.argv) > 3 else None

driver = ctypes.CDLL("libcuda.so.1")  # the library that PyCUDA has loaded
cuda.init()
context = cuda.Device(0).retain_primary_context()
context.push()
scale_add = cuda.module_from_buffer(image).get_function("scale_add")
x, left, right, sum_ = (cuda.mem_alloc(4 * N) for _ in range(4))
spare = [cuda.mem_alloc(4)]
origin, fork_left, fork_right = (cuda.Stream(1) for _ in range(3))
events = [cuda.Event(cuda.event_flags.DISABLE_TIMING) for _ in range(3)]
batch, result = (cuda.pagelocked_empty(N, np.float32) for _ in range(2))


def launch(y: SupportsInt, x: SupportsInt, more: SupportsInt, factor: float, stream: cuda.Stream) -> None:
    args = struct.pack("PPPif", int(y), int(x), int(more), N, factor)
    scale_add._launch_kernel((1,), (256,), args, 0, stream)


def after(stream: cuda.Stream, event: cuda.Event, earlier: cuda.Stream) -> None:
    event.record(earlier)
    stream.wait_for_event(event)


def work() -> None:
    """sum = 2 x + 3 x, its halves on two streams of their own."""
    if missing == "free":
        spare.pop().free()
    cuda.memcpy_htod_async(x, batch, origin)
    events[0].record(origin)
    if missing != "fork":
        fork_left.wait_for_event(events[0])
    fork_right.wait_for_event(events[0])
    launch(left, x, 0, 2.0, fork_left)
    launch(right, x, 0, 3.0, fork_right)
    after(origin, events[1], fork_right)
    if missing != "join":
        after(fork_right if missing == "order" else origin, events[2], fork_left)
    if missing == "order":  # joined all the same, but only after the sum
        launch(sum_, left, right, 1.0, origin)
        after(origin, events[1], fork_right)
    else:
        launch(sum_, left, right, 1.0, origin)
    cuda.memcpy_dtoh_async(result, sum_, origin)


def captured() -> ctypes.c_void_p:
    graph, stream = ctypes.c_void_p(), ctypes.c_void_p(origin.handle)
    assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
    try:
        work()
    except cuda.Error as error:
        print(error)
    status = driver.cuStreamEndCapture(stream, ctypes.byref(graph))
    if status:
        print(f"error {status}")
    return graph


launch(left, x, 0, 2.0, origin)  # before the capture: the first launch loads the kernel
origin.synchronize()
graph = captured()
if graph:
    executable = ctypes.c_void_p()
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)) == 0
    wrong, rng = 0, np.random.default_rng(0)
    for _ in range(launches):
        for place in (left, right):
            cuda.memset_d32(place, 0xFFFFFFFF, N)
        context.synchronize()  # no other stream waits for it
        batch[:] = rng.standard_normal(N, dtype=np.float32)
        assert driver.cuGraphLaunch(executable, ctypes.c_void_p(origin.handle)) == 0
        origin.synchronize()
        wrong += not np.array_equal(result, 2 * batch + 3 * batch)
    print(wrong)
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)
context.pop()
