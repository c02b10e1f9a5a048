"""Properties of kernels after loading: registers, shared memory, blocks per multiprocessor.

PyCUDA exposes neither occupancy nor handles of functions, so modules are loaded a second time with the driver's
library.
"""

from __future__ import annotations

import ctypes

from layermem.backends.cuda.driver.context import WHOLE_CARVEOUT, Driver
from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.support.launch import Launch
from tools.gpu.results import Row

Handle = ctypes.c_void_p
STATIC_BYTES, REGISTERS, DYNAMIC_LIMIT, CARVEOUT = 1, 4, 8, 9  # CU_FUNC_ATTRIBUTE_*


class LoadedKernels:
    def __init__(self, driver: Driver):
        self.driver = driver
        self._library = ctypes.CDLL("libcuda.so.1")
        self._modules: dict[str, Handle] = {}

    def describe(self, launch: Launch) -> Row:
        """Columns for the kernel of a launch; `blocks` is the number per multiprocessor."""
        function = self._function(launch)
        if launch.shared:
            self._call("cuFuncSetAttribute", function, DYNAMIC_LIMIT, launch.shared)
            self._call("cuFuncSetAttribute", function, CARVEOUT, WHOLE_CARVEOUT)
        blocks, shared = ctypes.c_int(), ctypes.c_size_t(launch.shared)
        self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), function, launch.block, shared)
        return {
            "threads": launch.block,
            "registers": self._attribute(function, REGISTERS),
            "static": self._attribute(function, STATIC_BYTES),
            "dynamic": launch.shared,
            "blocks": blocks.value,
        }

    def _function(self, launch: Launch) -> Handle:
        if launch.module not in self._modules:
            module, image = Handle(), build.image(launch.module, self.driver.gpu.capability)
            self._call("cuModuleLoadData", ctypes.byref(module), image)
            self._modules[launch.module] = module
        function = Handle()
        self._call(
            "cuModuleGetFunction", ctypes.byref(function), self._modules[launch.module], launch.function.encode()
        )
        return function

    def _attribute(self, function: Handle, attribute: int) -> int:
        value = ctypes.c_int()
        self._call("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
        return value.value

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise OSError(f"{name} failed with {status}")
