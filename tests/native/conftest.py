"""Memory for kernel tests: arrays at multiples of 256 bytes, NaN in unwritten memory, guards around every array.

Under AddressSanitizer (make sanitize) the guards are poisoned, so that a read of them is reported as well.
"""

import ctypes

import numpy as np
import pytest

from layermem._native import cpu

GUARD = 256


def poison(array: np.ndarray, on: bool = True) -> None:
    """Make AddressSanitizer report any access to the bytes of `array`, or stop doing so; without it, do nothing."""
    mark = getattr(ctypes.CDLL(None), "__asan_poison_memory_region" if on else "__asan_unpoison_memory_region", None)
    if mark is not None:
        mark(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))


class Memory:
    """Hands out addresses.  `shift` moves every array by that many 256-byte steps."""

    def __init__(self, shift: int = 0):
        self.shift = shift
        self.parts: list[tuple[np.ndarray, int, int]] = []  # whole bytes, begin, end

    def _take(self, size: int) -> np.ndarray:
        whole = np.full(size + 4 * GUARD + GUARD * self.shift, 0xAB, np.uint8)
        begin = -whole.ctypes.data % GUARD + GUARD * (1 + self.shift)
        self.parts.append((whole, begin, begin + size))
        poison(whole[:begin])
        poison(whole[begin + size :])
        return whole[begin : begin + size]

    def put(self, values, dtype=np.float32) -> np.ndarray:
        values = np.ascontiguousarray(values, dtype)
        array = self._take(values.nbytes).view(dtype).reshape(values.shape)
        array[...] = values
        return array

    def empty(self, *shape: int, dtype=np.float32) -> np.ndarray:
        """An output: all its bytes are 0xFF, which as a float is NaN."""
        array = self._take(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        array[...] = 0xFF
        return array.view(dtype).reshape(shape)

    def workspace(self, size: int) -> int:
        """Address of `size` poisoned bytes; 0 for none."""
        return self.empty(size, dtype=np.uint8).ctypes.data if size else 0

    def check(self) -> None:
        for whole, begin, end in self.parts:
            poison(whole, False)
            assert (whole[:begin] == 0xAB).all() and (whole[end:] == 0xAB).all(), "a kernel wrote outside its buffers"


@pytest.fixture
def memory():
    area = Memory()
    yield area
    area.check()


@pytest.fixture(params=cpu.available_isas())
def isa(request):
    cpu.set_isa(request.param)
    yield request.param
    cpu.set_isa("auto")


@pytest.fixture
def every_way():
    """Runs `make(memory) -> arrays` with 1, 2 and 3 threads and at other offsets: all must give the same bits."""

    def run(make):
        before = cpu.threads()
        results = []
        try:
            for threads, shift in ((1, 0), (2, 0), (3, 1), (2, 3)):
                cpu.set_threads(threads)
                area = Memory(shift)
                results.append([np.array(a) for a in make(area)])
                area.check()
        finally:
            cpu.set_threads(before)
        for other in results[1:]:
            for a, b in zip(results[0], other):
                assert a.tobytes() == b.tobytes()
        return results[0]

    return run
