"""Limits NumPy's matrix products to one thread for the life of this process.

The order of sums in OpenBLAS depends on its number of threads, so bits would depend on the machine; on small products,
synchronization also costs more than it gains.  OPENBLAS_NUM_THREADS has the same effect, but only before NumPy is
imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from numpy.linalg import _umath_linalg

SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def use_one_thread() -> bool:
    """Limit the OpenBLAS that NumPy uses to one thread; return whether it was found."""
    for set_number_of_threads in _setters():
        set_number_of_threads(ctypes.c_int(1))
    return bool(_setters())


@cache
def _setters() -> tuple[Callable[[ctypes.c_int], object], ...]:
    """The functions that set the number of threads, found in the library that one of NumPy's modules is linked with."""
    with suppress(OSError):
        library = ctypes.CDLL(_umath_linalg.__file__)
        return tuple(getattr(library, name) for name in SETTERS if hasattr(library, name))
    return ()
