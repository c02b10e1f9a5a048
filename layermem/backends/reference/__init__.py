"""The reference backend, one file per layer family.  Importing this package registers them all."""

from layermem.backends.reference import (
    activation,
    convolution,
    dropout,
    eltwise,
    gather,
    host,
    inner_product,
    loss,
    mvn,
    normalization,
    pooling,
    reduction,
    resize,
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
    "gather",
    "host",
    "inner_product",
    "loss",
    "mvn",
    "normalization",
    "pooling",
    "reduction",
    "resize",
    "shape",
    "softmax",
    "update",
]
