"""Measures the GPU's best rates: copies, arithmetic, launches.  Other results are reported as a share of these."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from layermem.backends.cuda.driver.graph import GraphCapture
from layermem.backends.cuda.support.launch import launch
from layermem.schedule.ir import COMPUTE, D2H, H2D
from tools.gpu.gpu import Gpu
from tools.gpu.own_kernels import OF_WARPGROUPS, SOURCE, THREADS
from tools.gpu.results import Options, Results, in_short, median_seconds

CHAINS = 8  # as in ceilings.cu
PINNED = (1 << 28, 1 << 30, 1 << 32)  # bytes
MATRIX = 8192  # rows and columns
PRODUCTS, WARPGROUP_SHARED = 16, 128 * 128 + 1024  # as in ceilings_sm90a.cu


class Rate(NamedTuple):
    """A kernel: floating-point operations per round and thread, blocks per multiprocessor, its source, bytes of dynamic
    shared memory, the smallest (or only) capability that has its instructions, and rounds of a launch."""

    operations: int
    blocks: int
    source: Path = SOURCE
    shared: int = 0
    least: int = 75
    only: str = ""
    rounds: int = 4000

    def runs_on(self, capability: str) -> bool:
        return int(capability) >= self.least and self.only in ("", capability)


WGMMA = Rate(0, 2, OF_WARPGROUPS, WARPGROUP_SHARED, only="90", rounds=400)
KERNELS = {
    "ffma_rate": Rate(2 * CHAINS, 4),
    "mma_tf32_rate": Rate(2 * CHAINS * 16 * 8 * 8 // 32, 2, least=80),
    "mma_bf16_rate": Rate(2 * CHAINS * 16 * 8 * 16 // 32, 2, least=80),
    "wgmma_tf32_rate": WGMMA._replace(operations=2 * PRODUCTS * 64 * 128 * 8 // 128),
    "wgmma_bf16_rate": WGMMA._replace(operations=2 * PRODUCTS * 64 * 128 * 16 // 128),
}


def run(results: Results, options: Options) -> None:
    gpu = Gpu(options.small, results.launching)
    for part in (copies, reads, launches):
        results.attempt(lambda part=part: part(gpu, results, options), part=part.__name__)
    for name in (name for name, kernel in KERNELS.items() if kernel.runs_on(gpu.driver.gpu.capability)):
        work = partial(arithmetic, gpu, results, options, name)
        results.attempt(work, most=10, part="arithmetic", what=title_of(name))
    for nbytes in (1 << 16,) if options.small else PINNED:
        results.attempt(lambda nbytes=nbytes: pinning(gpu, results, nbytes), most=60, part="pinning", bytes=nbytes)
    results.attempt(lambda: libraries(results, options), most=60, part="libraries")  # PyTorch is slow to import
    gpu.driver.close()


def copies(gpu: Gpu, results: Results, options: Options) -> None:
    cuda, driver = gpu.cuda, gpu.driver
    large, link = (1 << 16, 1 << 16) if options.small else (1 << 30, 1 << 28)
    one, other = driver.allocate(large), driver.allocate(large)

    def rate(what: str, run: Callable[[], None], nbytes: int, unit: str) -> None:
        spent = median_seconds(run, gpu.seconds, options.rounds)
        results.add(part="copies", what=what, rate=nbytes / spent / 1e9, unit=unit)

    within = lambda: cuda.memcpy_dtod_async(int(one), int(other), large, gpu.stream)  # noqa: E731
    rate("copy on the GPU", within, 2 * large, "GB/s read and written")
    rate("fill of the GPU's memory", lambda: driver.fill(int(one), 0, large, COMPUTE), large, "GB/s written")
    here, there = driver.pinned(link), driver.pinned(link)
    to_host, to_gpu = driver.copy_out(here, int(one), D2H), driver.copy_in(int(other), there, H2D)

    def both() -> None:
        to_host()
        to_gpu()

    for what, copy, amount in (
        ("copy to the host", to_host, 1),
        ("copy to the GPU", to_gpu, 1),
        ("both at once", both, 2),
    ):
        spent = median_seconds(copy, gpu.wall_seconds, options.rounds)
        results.add(part="copies", what=what, rate=amount * link / spent / 1e9, unit="GB/s")


def reads(gpu: Gpu, results: Results, options: Options) -> None:
    """Measure reads by a kernel: from the L2 cache, from device memory, and from the host's pinned memory."""
    driver = gpu.driver
    cached, large, link = (1 << 12,) * 3 if options.small else (1 << 24, 1 << 30, 1 << 27)
    memory = driver.allocate(large)
    driver.fill(int(memory), 0, large)
    host = driver.pinned(link)
    host[:] = 0
    for what, place, nbytes, rounds in (
        ("L2 cache", int(memory), cached, 1 if options.small else 50),
        ("memory", int(memory), large, 1),
        ("memory of the host", int(host.ctypes.data), link, 1),
    ):
        spent = median_seconds(gpu.reader(place, nbytes, rounds), gpu.seconds, options.rounds)
        results.add(part="reads", what=f"reading {what}", rate=rounds * nbytes / spent / 1e9, unit="GB/s")


def pinning(gpu: Gpu, results: Results, nbytes: int) -> None:
    """Measure how long it takes to pin offloaded buffers of a size; on a virtual machine memory may grow as it is
    touched."""
    began = time.perf_counter()
    held = gpu.driver.pinned(nbytes)
    spent = time.perf_counter() - began
    results.add(
        part="pinning", bytes=held.nbytes, what="pinning memory of the host", rate=1e9 * spent / nbytes, unit="s/GB"
    )


def launches(gpu: Gpu, results: Results, options: Options) -> None:
    """Measure launches one after the other, and as nodes of a graph."""
    memory, count = gpu.driver.allocate(256), 20 if options.small else 1000
    fill = launch("fill", "fill", "FillArgs", 1, y=int(memory), count=1, value=0.0, accumulate=False)
    start = gpu.starter([fill] * count, {})
    spent = median_seconds(start, gpu.wall_seconds, 5)
    results.add(part="launches", what="launch", rate=1e6 * spent / count, unit="us")
    with GraphCapture(gpu.driver.streams, COMPUTE, gpu.driver.event) as graph:
        start()
    spent = median_seconds(graph.launch, gpu.wall_seconds, 5)
    results.add(part="launches", what="kernel of a graph", rate=1e6 * spent / count, unit="us")


def libraries(results: Results, options: Options) -> None:
    """Measure PyTorch's product of two large matrices, if it is installed."""
    try:
        rates = {} if options.small else import_module("tools.gpu.torch_layers").product_rates(MATRIX)
    except Exception as error:  # a package of that size may raise anything
        results.add(part="libraries", what="PyTorch", says=in_short(error))
        return
    for precision, rate in rates.items():
        results.add(part="libraries", what=f"PyTorch {precision}, {MATRIX}^3", rate=rate / 1e12, unit="TFLOP/s")


def arithmetic(gpu: Gpu, results: Results, options: Options, name: str) -> None:
    kernel, rounds = KERNELS[name], 2 if options.small else KERNELS[name].rounds
    function = gpu.own_module(kernel.source).get_function(name)
    grid = kernel.blocks * (1 if options.small else gpu.driver.gpu.multiprocessors * 8)
    memory = gpu.driver.allocate(4 * grid)
    args = struct.pack("Piff4x", int(memory), rounds, 0.999, 0.001)

    def start() -> None:
        function._launch_kernel((grid, 1, 1), (THREADS, 1, 1), args, kernel.shared, gpu.stream)

    spent = median_seconds(start, gpu.seconds, options.rounds)
    rate = kernel.operations * rounds * THREADS * grid / spent
    results.add(part="arithmetic", what=title_of(name), rate=rate / 1e12, unit="TFLOP/s, no memory")


def title_of(kernel: str) -> str:
    return kernel.replace("_", " ")
