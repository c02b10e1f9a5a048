"""NumPy's matrix products on one thread, as long as this process lives.

Which sums OpenBLAS forms depends on how many threads it splits a product over, so its bits would depend on the
machine; and on small products, threads that wait for each other cost more than they give.  OPENBLAS_NUM_THREADS says
the same, but only before NumPy is imported.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

MAPS = Path("/proc/self/maps")  # Linux: the libraries that this process has loaded
SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def use_one_thread() -> bool:
    """Limit the OpenBLAS that NumPy uses to one thread; whether it was found."""
    limited = False
    with suppress(OSError):
        for path in sorted({line.split()[-1] for line in MAPS.read_text().splitlines() if "openblas" in line}):
            library = ctypes.CDLL(path)
            for name in SETTERS:
                setter = getattr(library, name, None)
                if setter is not None:
                    setter(ctypes.c_int(1))
                    limited = True
    return limited
