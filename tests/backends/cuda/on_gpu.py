"""Launches on a GPU for the harness: arrays of the host are copied there, and back when all launches are done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.support.launch import Launch
from layermem.schedule.ir import COMPUTE
from layermem.utils.units import aligned

GUARD, GUARDED = 256, 0xAB  # bytes beside every buffer, and what they hold


class Gpu:
    """One op at a time: placed(), launch() .., bring_back()."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self._memory = driver.allocate(1 << 20)
        self._capacity = 1 << 20
        self._arrays: dict[int, tuple[np.ndarray, int]] = {}  # by address on the host: array, offset on the GPU

    def placed(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Where each array lies on the GPU now; two roles in one array lie in one place."""
        self._arrays, end = {}, GUARD
        for array in arrays.values():
            if array.ctypes.data not in self._arrays:
                self._arrays[array.ctypes.data] = array, end
                end += aligned(array.nbytes) + GUARD
        if end > self._capacity:
            self._memory.free()
            self._memory, self._capacity = self.driver.allocate(end), end
        self._end = end
        self.driver.fill(int(self._memory), GUARDED, end)
        for array, offset in self._arrays.values():
            self.driver.write(int(self._memory) + offset, np.ascontiguousarray(array))
        return {role: int(self._memory) + self._arrays[array.ctypes.data][1] for role, array in arrays.items()}

    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None:
        self.driver.launcher(launch, launch.packed(context), COMPUTE)()

    def bring_back(self) -> None:
        """All arrays as the kernels left them; AssertionError if anything beside them was written."""
        self.driver.synchronize()
        found = np.empty(self._end, np.uint8)
        self.driver.read(found, int(self._memory))
        for array, offset in self._arrays.values():
            flat = array.reshape(-1).view(np.uint8)
            flat[:] = found[offset : offset + array.nbytes]
            found[offset : offset + array.nbytes] = GUARDED
        assert (found == GUARDED).all(), "a kernel wrote outside its buffers"
