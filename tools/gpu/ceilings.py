"""What the GPU can do at best: copies, arithmetic, launches.  Everything else is reported as a share of these."""

from __future__ import annotations

import struct
import time
from pathlib import Path

from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.kernel_images.sources import SOURCES
from layermem.backends.cuda.launch import launch
from layermem.schedule.ir import D2H, H2D
from tools.gpu.gpu import Gpu
from tools.gpu.results import Options, Results, median_seconds

SOURCE = Path(__file__).with_name("ceilings.cu")
CHAINS, THREADS = 8, 256  # as in ceilings.cu
KERNELS = {  # floating-point operations a round and thread; blocks that share a multiprocessor
    "ffma_rate": (2 * CHAINS, 4),
    "mma_tf32_rate": (2 * CHAINS * 16 * 8 * 8 // 32, 2),
    "mma_bf16_rate": (2 * CHAINS * 16 * 8 * 16 // 32, 2),
}


def run(results: Results, options: Options) -> None:
    gpu = Gpu()
    for part in (copies, launches, arithmetic):
        results.attempt(lambda part=part: part(gpu, results, options), part=part.__name__)
    gpu.driver.close()


def copies(gpu: Gpu, results: Results, options: Options) -> None:
    cuda, driver = gpu.cuda, gpu.driver
    large, link = (1 << 16, 1 << 16) if options.small else (1 << 30, 1 << 28)
    one, other = driver.allocate(large), driver.allocate(large)
    spent = median_seconds(
        lambda: cuda.memcpy_dtod_async(int(one), int(other), large, gpu.stream), gpu.seconds, options.rounds
    )
    results.add(part="copies", what="copy on the GPU", rate=2 * large / spent / 1e9, unit="GB/s read and written")
    began = time.perf_counter()
    here, there = driver.pinned(link), driver.pinned(link)
    pin = (time.perf_counter() - began) / (2 * link)
    results.add(part="copies", what="pinning memory of the host", rate=1e9 * pin, unit="s/GB")
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


def launches(gpu: Gpu, results: Results, options: Options) -> None:
    memory, count = gpu.driver.allocate(256), 20 if options.small else 1000
    fill = launch("fill", "fill", "FillArgs", 1, y=int(memory), count=1, value=0.0, accumulate=False)
    start = gpu.starter([fill] * count, {})
    results.add(
        part="launches", what="launch", rate=1e6 * median_seconds(start, gpu.wall_seconds, 5) / count, unit="us"
    )


def arithmetic(gpu: Gpu, results: Results, options: Options) -> None:
    module = gpu.cuda.module_from_buffer(image(gpu, options.small))
    blocks_of = 1 if options.small else gpu.driver.gpu.multiprocessors * 8
    rounds = 2 if options.small else 4000
    for name, (operations, blocks) in KERNELS.items():
        if name.startswith("mma") and int(gpu.driver.gpu.capability) < 80:
            continue
        function, grid = module.get_function(name), blocks_of * blocks
        memory = gpu.driver.allocate(4 * grid)
        args = struct.pack("Piff4x", int(memory), rounds, 0.999, 0.001)

        def start(function=function, grid=grid, args=args) -> None:
            function._launch_kernel((grid, 1, 1), (THREADS, 1, 1), args, 0, gpu.stream)

        spent = median_seconds(start, gpu.seconds, options.rounds)
        rate = operations * rounds * THREADS * grid / spent
        results.add(part="arithmetic", what=name.replace("_", " "), rate=rate / 1e12, unit="TFLOP/s, registers only")


def image(gpu: Gpu, emulated: bool) -> bytes:
    if emulated:
        from tests.emulator.build import build as for_the_host

        return for_the_host(SOURCE).read_bytes()
    text = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCES / "primitives.cuh", SOURCE))
    text = text.replace("#pragma once\n", "").replace('#include "primitives.cuh"\n', "")
    return build.find_compiler().cubin(text, f"sm_{gpu.driver.gpu.capability}", build.FLAGS)
