"""What is said where the cuda device cannot be used."""

import sys

import pytest

from layermem.backends.cuda.driver.context import pycuda
from layermem.errors import CudaUnavailable


def test_without_pycuda_the_error_says_what_its_installation_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(CudaUnavailable, match="no CUDA toolkit is needed"):
        pycuda.__wrapped__()
