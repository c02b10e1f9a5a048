"""The reference backend, one file per layer family.  Importing this package imports, and so registers, them all."""

from importlib import import_module

from layermem.backends.reference.device import ReferenceDevice
from layermem.utils.modules import modules_in

__all__ = ["ReferenceDevice"]

for name, _ in modules_in(__path__):
    import_module(f"{__name__}.{name}")
