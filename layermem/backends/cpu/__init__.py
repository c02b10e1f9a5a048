"""The cpu device and its kernels, one file per family.  Importing this package registers them all."""

from layermem.backends.cpu import (
    activation,
    convolution,
    dropout,
    eltwise,
    gather,
    host,
    im2col,
    inner_product,
    loss,
    mvn,
    normalization,
    parameter,
    pooling,
    reduction,
    resize,
    shape,
    softmax,
    update,
)
from layermem.backends.cpu.base import cpu_kernels
from layermem.backends.cpu.device import CpuDevice

__all__ = [
    "CpuDevice",
    "activation",
    "convolution",
    "cpu_kernels",
    "dropout",
    "eltwise",
    "gather",
    "host",
    "im2col",
    "inner_product",
    "loss",
    "mvn",
    "normalization",
    "parameter",
    "pooling",
    "reduction",
    "resize",
    "shape",
    "softmax",
    "update",
]
