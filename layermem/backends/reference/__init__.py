"""The reference backend, one file per layer family.  Importing this package registers them all."""

from layermem.backends.reference import (
    activation,
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
from layermem.backends.reference.device import ReferenceDevice

__all__ = [
    "ReferenceDevice",
    "activation",
    "convolution",
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
