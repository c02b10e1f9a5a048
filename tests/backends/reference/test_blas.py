"""The reference device multiplies on one thread."""

import ctypes

import numpy as np
import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.backends.reference.blas import MAPS, SETTERS, use_one_thread


def test_the_openblas_that_numpy_loaded_is_limited_to_one_thread():
    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    if not use_one_thread():
        pytest.skip("NumPy has no OpenBLAS here")
    ReferenceDevice()
    counts = []
    for path in {line.split()[-1] for line in MAPS.read_text().splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        counts += [getattr(library, n.replace("set", "get"))() for n in SETTERS if hasattr(library, n)]
    assert counts and set(counts) == {1}
