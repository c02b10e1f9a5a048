"""The cpu device and its bindings, one file a family.  Importing this package registers them all."""

from layermem.backends.cpu import activation, channels, convolution, elements, lines, losses, moves, reduction, scale
from layermem.backends.cpu.device import CpuDevice

__all__ = [
    "CpuDevice", "activation", "channels", "convolution", "elements", "lines", "losses", "moves", "reduction", "scale",
]  # fmt: skip
