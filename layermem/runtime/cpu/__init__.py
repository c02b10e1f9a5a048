"""The cpu device and its bindings, one file a family.  Importing this package registers them all."""

from layermem.runtime.cpu import channels, convolution, elements, lines
from layermem.runtime.cpu.device import CpuDevice

__all__ = ["CpuDevice", "channels", "convolution", "elements", "lines"]
