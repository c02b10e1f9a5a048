"""Layers: shapes, memory and cost of every family.  Importing this package registers them all."""

from layermem.layers import (
    activation,
    convolution,
    dropout,
    eltwise,
    gather,
    inner_product,
    loss,
    mvn,
    normalization,
    pooling,
    reduction,
    resize,
    shape,
    softmax,
)
from layermem.layers.base import LAYERS, Layer, Overlay, Param, Step, Tensor, make_layer

__all__ = [
    "LAYERS",
    "Layer",
    "Overlay",
    "Param",
    "Step",
    "Tensor",
    "activation",
    "convolution",
    "dropout",
    "eltwise",
    "gather",
    "inner_product",
    "loss",
    "make_layer",
    "mvn",
    "normalization",
    "pooling",
    "reduction",
    "resize",
    "shape",
    "softmax",
]
