"""Launches of every op, one file a family.  Importing this package registers them all."""

from layermem.runtime.cuda.kernels import (
    activation,
    batch_norm,
    convolution,
    dropout,
    eltwise,
    inner_product,
    learn,
    loss,
    lrn,
    pooling,
    reduction,
    resize,
    scale,
    shape,
    softmax,
    step,
    update,
)
from layermem.runtime.cuda.launch import KERNELS, WORKSPACES

__all__ = [
    "KERNELS",
    "WORKSPACES",
    "activation",
    "batch_norm",
    "convolution",
    "dropout",
    "eltwise",
    "inner_product",
    "learn",
    "loss",
    "lrn",
    "pooling",
    "reduction",
    "resize",
    "scale",
    "shape",
    "softmax",
    "step",
    "update",
]
