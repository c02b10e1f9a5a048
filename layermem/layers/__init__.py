"""Layers: shapes, memory and cost of every family.  Importing this package imports, and so registers, them all."""

from importlib import import_module

from layermem.layers.base import LAYERS, Layer, Overlay, Param, Step, Tensor, make_layer
from layermem.utils.modules import modules_in

__all__ = ["LAYERS", "Layer", "Overlay", "Param", "Step", "Tensor", "make_layer"]

for name, _ in modules_in(__path__):
    import_module(f"{__name__}.{name}")
