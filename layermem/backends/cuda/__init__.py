"""The cuda device and its kernels, one file per family.  Importing this package imports, and so registers, them all;
PyCUDA and a GPU are needed only when the device first runs."""

from importlib import import_module
from pkgutil import iter_modules

from layermem.backends.cuda.base import cuda_kernels
from layermem.backends.cuda.device import CudaDevice

__all__ = ["CudaDevice", "cuda_kernels"]

for module in iter_modules(__path__):
    if not module.ispkg:
        import_module(f"{__name__}.{module.name}")
