"""The reference backend, one file per layer family.  Importing this package imports, and so registers, them all."""

from importlib import import_module
from pkgutil import iter_modules

from layermem.backends.reference.device import ReferenceDevice

__all__ = ["ReferenceDevice"]

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
