"""The cuda device and its kernels, one file per family.  Importing this package registers them all; PyCUDA and a GPU
are needed only when the device first runs."""

from layermem.backends.cuda import (
    activation,
    convolution,
    dropout,
    eltwise,
    gather,
    host,
    im2col,
    inner_product,
    inner_product_update,
    loss,
    mvn,
    normalization,
    parameter,
    pooling,
    reduction,
    resize,
    scale,
    shape,
    softmax,
    update,
)
from layermem.backends.cuda.base import cuda_kernels
from layermem.backends.cuda.device import CudaDevice

__all__ = [
    "CudaDevice",
    "activation",
    "convolution",
    "cuda_kernels",
    "dropout",
    "eltwise",
    "gather",
    "host",
    "im2col",
    "inner_product",
    "inner_product_update",
    "loss",
    "mvn",
    "normalization",
    "parameter",
    "pooling",
    "reduction",
    "resize",
    "scale",
    "shape",
    "softmax",
    "update",
]
