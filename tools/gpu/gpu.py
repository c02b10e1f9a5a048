"""The GPU as the steps use it: its driver, time by its own events, memory full of random numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.driver.step_scalars import StreamScalars, scalars_by_stream
from layermem.backends.cuda.launch import Launch
from layermem.schedule.ir import COMPUTE
from layermem.utils.units import aligned

NOISE = 1 << 22  # floats that are drawn; longer blobs repeat them
WARM_SECONDS = 0.5  # until an idle GPU runs at its clock
FLUSHED = 1 << 28  # bytes, more than any L2 cache holds


class Gpu:
    """`small`: an emulated one, which has neither clock nor cache."""

    def __init__(self, small: bool = False) -> None:
        self.driver = Driver(0)
        self.cuda = self.driver.cuda
        self.stream = self.driver.streams[COMPUTE]
        self._held: list[Any] = []
        self._delay = self.driver.delay(COMPUTE)
        self._small = small
        if not small:
            self.warm_up()

    def warm_up(self) -> None:
        """Copies within the GPU's memory until its clock has gone up."""
        began = time.perf_counter()
        while time.perf_counter() - began < WARM_SECONDS:
            for _ in range(100):
                self.flush()
            self.driver.synchronize()

    @cached_property
    def _flushed(self) -> Any:
        return self.driver.allocate(self._flushed_bytes)

    @property
    def _flushed_bytes(self) -> int:
        return 4096 if self._small else FLUSHED

    def flush(self) -> None:
        """Write over the L2 cache, so that what is timed next finds its operands in memory."""
        self.cuda.memset_d32_async(int(self._flushed), 0, self._flushed_bytes // 4, self.stream)

    @cached_property
    def noise(self) -> Any:
        """On the GPU, so that large blobs are filled at its own speed."""
        memory = self.driver.allocate(4 * NOISE)
        self.driver.write(int(memory), np.random.default_rng(1).standard_normal(NOISE, dtype=np.float32))
        return memory

    @cached_property
    def step_scalars(self) -> StreamScalars:
        return scalars_by_stream(self.driver)[COMPUTE]

    def seconds(self, run: Callable[[], None]) -> float:
        """Of what `run` puts on the compute stream, by events on both sides; the stream is busy before, so that no
        latency of a launch counts."""
        begin, end = self.cuda.Event(), self.cuda.Event()
        self.driver.synchronize()
        self._delay()
        begin.record(self.stream)
        run()
        end.record(self.stream)
        end.synchronize()
        return 1e-3 * begin.time_till(end)

    def cold_seconds(self, run: Callable[[], None]) -> float:
        """The same with nothing in the L2 cache."""
        begin, end = self.cuda.Event(), self.cuda.Event()
        self.driver.synchronize()
        self.flush()
        begin.record(self.stream)
        run()
        end.record(self.stream)
        end.synchronize()
        return 1e-3 * begin.time_till(end)

    def wall_seconds(self, run: Callable[[], None]) -> float:
        """From the first call to the last result."""
        self.driver.synchronize()
        began = time.perf_counter()
        run()
        self.driver.synchronize()
        return time.perf_counter() - began

    def filled(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Addresses of that many bytes each, full of random numbers; the next call takes the memory back."""
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
        self.driver.launcher(launch, launch.packed(context), COMPUTE)()

    def starter(self, launches: Iterable[Launch], context: Mapping[str, Any]) -> Callable[[], None]:
        """A call that starts them all; the scalars of the step are on the GPU before it is made."""
        self.step_scalars.is_new_step = True
        self.step_scalars.upload(context)
        self.driver.synchronize()
        calls = [self.driver.launcher(launch, launch.packed(context), COMPUTE) for launch in launches]

        def start() -> None:
            for call in calls:
                call()

        return start
