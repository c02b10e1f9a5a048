"""The cuda device and its kernels, one file per family.  Importing this package registers them all; PyCUDA and a GPU
are needed only when the device first runs."""

from layermem.backends.cuda import (  # noqa: F401  registers their kernels
    activation,
    affine_norm,
    axpy,
    communication,
    convolution,
    convolution_nd,
    dropout,
    eltwise,
    gather,
    host,
    im2col,
    images,
    inner_product,
    inner_product_update,
    l2norm,
    loss,
    mvn,
    normalization,
    parameter,
    permute,
    pooling,
    prior_box,
    recurrent,
    reduction,
    resize,
    roi_pooling,
    scale,
    shape,
    softmax,
    update,
    upsample,
)
from layermem.backends.cuda.base import cuda_kernels
from layermem.backends.cuda.device import CudaDevice

__all__ = ["CudaDevice", "cuda_kernels"]
