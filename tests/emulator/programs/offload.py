"""Offloads a buffer and fetches it back while another buffer uses its bytes.

    python offload.py <image> <trials> [<event not waited for>]     prints how many trials gave a wrong result

One arena of three places; streams for computing, for copies to the host and for copies to the device.
"""

import struct
import sys
from pathlib import Path

import numpy as np
import pycuda.driver as cuda

N = 300
PLACE = 4 * N + (-4 * N) % 256

image, trials = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
missing = sys.argv[3] if len(sys.argv) > 3 else None

cuda.init()
context = cuda.Device(0).retain_primary_context()
context.push()
scale_add = cuda.module_from_buffer(image).get_function("scale_add")
arena = cuda.mem_alloc(3 * PLACE)
first, second, third = (int(arena) + i * PLACE for i in range(3))
compute, to_host, to_device = (cuda.Stream(1) for _ in range(3))
EVENTS = ("data is there", "data may leave", "data has left", "data may come back", "data is back")
events = {name: cuda.Event(cuda.event_flags.DISABLE_TIMING) for name in EVENTS}
batch, away, result = (cuda.pagelocked_empty(N, np.float32) for _ in range(3))


def launch(y: int, x: int, more: int, factor: float) -> None:
    args = struct.pack("PPPif", y, x, more, N, factor)
    scale_add._launch_kernel((-(-N // 256),), (256,), args, 0, compute)


def wait(stream: cuda.Stream, name: str) -> None:
    if name != missing:
        stream.wait_for_event(events[name])


def step(x: np.ndarray) -> np.ndarray:
    """((2 x) + 3 (2 x)) + 2 x, with 2 x on the host between its two uses."""
    batch[:] = x
    cuda.memcpy_htod_async(first, batch, to_device)
    events["data is there"].record(to_device)
    wait(compute, "data is there")
    launch(second, first, 0, 2.0)
    events["data may leave"].record(compute)
    wait(to_host, "data may leave")
    cuda.memcpy_dtoh_async(away, second, to_host)
    events["data has left"].record(to_host)
    launch(first, second, 0, 3.0)
    launch(third, first, second, 1.0)
    wait(compute, "data has left")
    launch(second, first, 0, -1.0)  # another buffer uses the place of 2 x
    events["data may come back"].record(compute)
    wait(to_device, "data has left")
    wait(to_device, "data may come back")
    cuda.memcpy_htod_async(first, away, to_device)
    events["data is back"].record(to_device)
    wait(compute, "data is back")
    launch(third, third, first, 1.0)
    cuda.memcpy_dtoh_async(result, third, compute)
    compute.synchronize()
    return result.copy()


wrong, rng = 0, np.random.default_rng(0)
for _ in range(trials):
    away.fill(np.nan)
    cuda.memset_d32(int(arena), 0xFFFFFFFF, 3 * PLACE // 4)
    context.synchronize()  # no other stream waits for it
    x = rng.standard_normal(N, dtype=np.float32)
    wrong += not np.array_equal(step(x), 2 * x + 3 * (2 * x) + 2 * x)
    context.synchronize()
print(wrong)
context.pop()
