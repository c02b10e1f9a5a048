"""Launches of every op, one file a family.  Importing this package registers them all."""

from layermem.runtime.cuda.kernels import (
    convolution,
    inner_product,
    shape,
)
from layermem.runtime.cuda.launch import KERNELS, WORKSPACES

__all__ = [
    "KERNELS",
    "WORKSPACES",
    "convolution",
    "inner_product",
    "shape",
]
