"""The version of CUDA that NVIDIA's driver supports: it determines the usable compilers and headers."""

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
        """The version of a number such as CUDA_VERSION in cuda.h: 12040 is 12.4."""
        return cls(number // 1000, number % 1000 // 10)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def driver_version() -> CudaVersion | None:
    """The version of this machine's driver, which needs neither a GPU nor a context; None without a driver."""
    number = ctypes.c_int()
    try:
        status = ctypes.CDLL(DRIVER).cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if status or not number.value else CudaVersion.of_number(number.value)
