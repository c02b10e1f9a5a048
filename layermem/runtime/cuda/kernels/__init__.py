"""Launches of every op, one file a family.  Importing this package registers them all."""

from layermem.runtime.cuda.kernels import (
    activation,
    convolution,
    dropout,
    eltwise,
    inner_product,
    pooling,
    shape,
)
from layermem.runtime.cuda.launch import KERNELS, WORKSPACES

__all__ = [
    "KERNELS",
    "WORKSPACES",
    "activation",
    "convolution",
    "dropout",
    "eltwise",
    "inner_product",
    "pooling",
    "shape",
]
