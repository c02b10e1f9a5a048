"""NumPy's matrix products on one thread, as long as this process lives.

Which sums OpenBLAS forms depends on how many threads it splits a product over, so its bits would depend on the
machine; and on small products, threads that wait for each other cost more than they give.  OPENBLAS_NUM_THREADS says
the same, but only before NumPy is imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from numpy.linalg import _umath_linalg

SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def use_one_thread() -> bool:
    """Limit the OpenBLAS that NumPy uses to one thread; whether it was found."""
    for set_number_of_threads in _setters():
        set_number_of_threads(ctypes.c_int(1))
    return bool(_setters())


@cache
def _setters() -> tuple[Callable[[ctypes.c_int], object], ...]:
    """Looked up among the symbols of the library that one of NumPy's modules was linked with."""
    with suppress(OSError):
        library = ctypes.CDLL(_umath_linalg.__file__)
        return tuple(getattr(library, name) for name in SETTERS if hasattr(library, name))
    return ()
