"""The reference device's kernels, one file a family.  Importing this package registers them all."""

from layermem.backends.reference import (
    activation,
    convolution,
    dropout,
    eltwise,
    fused,
    inner_product,
    loss,
    normalization,
    pooling,
    reduction,
    resize,
    shape,
    softmax,
    step,
    update,
)
from layermem.backends.reference.device import ReferenceDevice

__all__ = [
    "ReferenceDevice",
    "activation",
    "convolution",
    "dropout",
    "eltwise",
    "fused",
    "inner_product",
    "loss",
    "normalization",
    "pooling",
    "reduction",
    "resize",
    "shape",
    "softmax",
    "step",
    "update",
]
