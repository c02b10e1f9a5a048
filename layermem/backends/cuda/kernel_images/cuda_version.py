"""The version of CUDA that NVIDIA's driver supports: which compilers make code for it, and which headers suit it."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

DRIVER = "libcuda.so.1"


class CudaVersion(NamedTuple):
    """str(CudaVersion(12, 4)) is "12.4"."""

    major: int
    minor: int

    @classmethod
    def of_number(cls, number: int) -> CudaVersion:
        """12040, as CUDA_VERSION in cuda.h, is 12.4."""
        return cls(number // 1000, number % 1000 // 10)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def driver_version() -> CudaVersion | None:
    """That of the driver of this machine, which needs neither a GPU nor a context; None where there is no driver."""
    number = ctypes.c_int()
    try:
        status = ctypes.CDLL(DRIVER).cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if status or not number.value else CudaVersion.of_number(number.value)
