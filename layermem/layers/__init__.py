"""Layers: shapes, memory and cost of every family.  Importing this package imports, and so registers, them all."""

from importlib import import_module
from pkgutil import iter_modules

from layermem.layers.base import LAYERS, Layer, Overlay, Param, Step, Tensor, make_layer

__all__ = ["LAYERS", "Layer", "Overlay", "Param", "Step", "Tensor", "make_layer"]

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
