"""The cuda device and its kernels, one file per family.  Importing this package imports, and so registers, them all;
PyCUDA and a GPU are needed only when the device first runs."""

from importlib import import_module

from layermem.backends.cuda.base import cuda_kernels
from layermem.backends.cuda.device import CudaDevice
from layermem.utils.modules import modules_in

__all__ = ["CudaDevice", "cuda_kernels"]

for name, is_package in modules_in(__path__):
    if not is_package:
        import_module(f"{__name__}.{name}")
