"""The GPU for the steps: its driver, timing by its own events, memory full of random numbers."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.driver.delay import delay
from layermem.backends.cuda.driver.step_scalars import StreamScalars, scalars_by_stream
from layermem.backends.cuda.support.launch import Launch
from layermem.schedule.ir import COMPUTE
from layermem.utils.units import aligned
from tools.gpu import own_kernels

NOISE = 1 << 22  # number of random floats; longer blobs repeat them
WARM_SECONDS = 0.5  # time for an idle GPU to raise its clock
FLUSHED = 1 << 28  # bytes, more than any L2 cache holds


class Gpu:
    """A GPU; `small` is an emulated one, without clock and cache.  `noting` is called with the kernel about to run."""

    def __init__(self, small: bool = False, noting: Callable[[str], None] = lambda kernel: None) -> None:
        self.driver = Driver(0)
        self.cuda = self.driver.cuda
        self.stream = self.driver.streams[COMPUTE]
        self._held: list[Any] = []
        self._outputs: list[Any] = []
        self._modules: dict[Path, Any] = {}
        self._delay = delay(self.driver, COMPUTE)
        self._small, self._noting = small, noting
        if not small:
            self.warm_up()

    def warm_up(self) -> None:
        """Copy within the GPU's memory until its clock has risen."""
        began = time.perf_counter()
        while time.perf_counter() - began < WARM_SECONDS:
            for _ in range(100):
                self.flush()
            self.driver.synchronize()

    def flush(self) -> None:
        """Fill the L2 cache by reading, so that the next timed work finds its operands in memory, and no earlier writes
        remain to be written back."""
        self._flush()

    @cached_property
    def _flush(self) -> Callable[[], None]:
        nbytes = 4096 if self._small else FLUSHED
        self._flushed = self.driver.allocate(nbytes)
        self.driver.fill(int(self._flushed), 0, nbytes)
        return self.reader(int(self._flushed), nbytes)

    def reader(self, address: int, nbytes: int, rounds: int = 1) -> Callable[[], None]:
        """A call that starts a kernel that reads `nbytes` `rounds` times."""
        grid = 2 if self._small else 8 * self.driver.gpu.multiprocessors
        function, out = self.own_module(own_kernels.SOURCE).get_function("read_rate"), self.driver.allocate(4 * grid)
        self._outputs.append(out)
        args = struct.pack("PPii", int(out), address, nbytes // 4, rounds)
        return lambda: function._launch_kernel((grid, 1, 1), (own_kernels.THREADS, 1, 1), args, 0, self.stream)

    def own_module(self, source: Path) -> Any:
        """Load a module of own_kernels.py."""
        if source not in self._modules:
            image = own_kernels.image(source, self.driver.gpu.capability, self._small)
            self._modules[source] = self.cuda.module_from_buffer(image)
        return self._modules[source]

    @cached_property
    def noise(self) -> Any:
        """Random numbers on the GPU, so that large blobs are filled at its speed."""
        memory = self.driver.allocate(4 * NOISE)
        self.driver.write(int(memory), np.random.default_rng(1).standard_normal(NOISE, dtype=np.float32))
        return memory

    @cached_property
    def step_scalars(self) -> StreamScalars:
        return scalars_by_stream(self.driver)[COMPUTE]

    def seconds(self, run: Callable[[], None]) -> float:
        """Seconds of the work that `run` puts on the compute stream, by events on both sides; the stream is busy
        before, so that launch latency does not count."""
        begin, end = self.cuda.Event(), self.cuda.Event()
        self.driver.synchronize()
        self._delay()
        begin.record(self.stream)
        run()
        end.record(self.stream)
        end.synchronize()
        return 1e-3 * begin.time_till(end)

    def cold_seconds(self, run: Callable[[], None]) -> float:
        """Seconds like `seconds`, with none of the operands in the L2 cache."""
        begin, end = self.cuda.Event(), self.cuda.Event()
        self.driver.synchronize()
        self.flush()
        begin.record(self.stream)
        run()
        end.record(self.stream)
        end.synchronize()
        return 1e-3 * begin.time_till(end)

    def wall_seconds(self, run: Callable[[], None]) -> float:
        """Seconds from the first call to the last result."""
        self.driver.synchronize()
        began = time.perf_counter()
        run()
        self.driver.synchronize()
        return time.perf_counter() - began

    def filled(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Addresses of memory of these sizes, filled with random numbers; the next call reuses the memory."""
        self._held.clear()
        found = {}
        for role, nbytes in sizes.items():
            memory = self.driver.allocate(aligned(nbytes))
            self._held.append(memory)
            found[role] = int(memory)
            for begin in range(0, nbytes, NOISE * 4):
                piece = min(nbytes - begin, NOISE * 4)
                self.cuda.memcpy_dtod_async(int(memory) + begin, int(self.noise), piece, self.stream)
        self.driver.synchronize()
        return found

    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None:
        self._noting(f"{launch.module}.{launch.function}")
        self.driver.launcher(launch, launch.packed(context), COMPUTE)()

    def starter(self, launches: Iterable[Launch], context: Mapping[str, Any]) -> Callable[[], None]:
        """A call that starts all launches; the scalars of the step are on the GPU before."""
        self.step_scalars.is_new_step = True
        self.step_scalars.upload(context)
        self.driver.synchronize()
        launches = list(launches)
        calls = [self.driver.launcher(launch, launch.packed(context), COMPUTE) for launch in launches]
        name = next((f"{launch.module}.{launch.function}" for launch in launches), "")

        def start() -> None:
            self._noting(name)
            for call in calls:
                call()

        return start
