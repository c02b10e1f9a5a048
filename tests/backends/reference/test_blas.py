"""The reference device multiplies on one thread."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MAPS = Path("/proc/self/maps")  # Linux: the libraries that a process has loaded
PROGRAM = """
import ctypes
from layermem.backends.reference import ReferenceDevice
from layermem.backends.reference.support.blas import SETTERS

paths = {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}
getters = [getattr(ctypes.CDLL(path), name.replace("set", "get"), None) for path in paths for name in SETTERS]
for device in (None, ReferenceDevice):
    device and device()
    print(*(get() for get in getters if get))
"""


@pytest.mark.skipif(not MAPS.exists(), reason="needs /proc to list the libraries of a process")
def test_the_openblas_that_numpy_loaded_is_limited_to_one_thread():
    """The limit is checked in a separate process, whose only OpenBLAS is NumPy's."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    if not before:
        pytest.skip("NumPy has no OpenBLAS here")
    assert (before, after) == (str(min(2, len(os.sched_getaffinity(0)))), "1")
