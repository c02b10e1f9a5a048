"""The cpu device and its kernels, one file per family.  Importing this package registers them all."""

from layermem.backends.cpu import (
    activation,
    affine_norm,
    convolution,
    dropout,
    eltwise,
    host,
    inner_product,
    l2norm,
    loss,
    normalization,
    permute,
    pooling,
    reduction,
    resize,
    roi_pooling,
    shape,
    softmax,
    update,
)
from layermem.backends.cpu.base import cpu_kernels
from layermem.backends.cpu.device import CpuDevice

__all__ = [
    "CpuDevice",
    "activation",
    "affine_norm",
    "convolution",
    "cpu_kernels",
    "dropout",
    "eltwise",
    "host",
    "inner_product",
    "l2norm",
    "loss",
    "normalization",
    "permute",
    "pooling",
    "reduction",
    "resize",
    "roi_pooling",
    "shape",
    "softmax",
    "update",
]
