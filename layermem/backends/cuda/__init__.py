"""The cuda device.  Importing this package registers it; PyCUDA and a card are asked for when it first runs."""

from layermem.backends.cuda.device import CudaDevice

__all__ = ["CudaDevice"]
