"""The cuda device and its kernels, one file per family.  Importing this package registers them all; PyCUDA and a GPU
are needed only when the device first runs."""

from layermem.backends.cuda import (
    activation,
    affine_norm,
    convolution,
    dropout,
    eltwise,
    host,
    inner_product,
    inner_product_update,
    l2norm,
    loss,
    normalization,
    permute,
    pooling,
    reduction,
    resize,
    roi_pooling,
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
    "affine_norm",
    "convolution",
    "cuda_kernels",
    "dropout",
    "eltwise",
    "host",
    "inner_product",
    "inner_product_update",
    "l2norm",
    "loss",
    "normalization",
    "permute",
    "pooling",
    "reduction",
    "resize",
    "roi_pooling",
    "scale",
    "shape",
    "softmax",
    "update",
]
