"""The reference device's kernels, one file a family.  Importing this package registers them all."""

from layermem.runtime.reference import (
    convolution,
    inner_product,
    pooling,
)

__all__ = [
    "convolution",
    "inner_product",
    "pooling",
]
