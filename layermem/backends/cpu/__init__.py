"""The cpu device and its kernels, one file per family.  Importing this package imports, and so registers, them all."""

from importlib import import_module

from layermem.backends.cpu.device import CpuDevice
from layermem.utils.modules import modules_in

__all__ = ["CpuDevice"]

for name, _ in modules_in(__path__):
    import_module(f"{__name__}.{name}")
