"""The cuda device.  Importing this package registers it; PyCUDA and a card are asked for when it first runs."""

from layermem.runtime.cuda.device import CudaDevice

__all__ = ["CudaDevice"]
