"""The cpu device and its kernels, one file per family.  Importing this package imports, and so registers, them all."""

from importlib import import_module
from pkgutil import iter_modules

from layermem.backends.cpu.device import CpuDevice

__all__ = ["CpuDevice"]

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
