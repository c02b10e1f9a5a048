"""Element types of 16 bits, whose bits NumPy holds as unsigned integers.

    bfloat16   the upper half of a float32: 8 bits of exponent, 7 of fraction

source  Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", 2019, for the format
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BITS = {"bfloat16": "uint16"}
Bits = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]
NAN = 0x7FFF  # that of every NaN, as GPUs round it


def widened(bits: Bits, dtype: str) -> Floats:
    """The numbers of `dtype` with these bits."""
    assert dtype == "bfloat16", dtype
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrowed(values: Floats, dtype: str) -> Bits:
    """The bits of the numbers of `dtype` nearest to these values: ties to even, infinity past the largest."""
    assert dtype == "bfloat16", dtype
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    return np.where(np.isnan(values), NAN, rounded).astype(np.uint16)
