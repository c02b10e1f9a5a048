"""Element types of 16 bits, whose bits NumPy holds as unsigned integers.

    bfloat16   the upper half of a float32: 8 bits of exponent, 7 of fraction
    float16    IEEE 754 binary16: 5 bits of exponent, 10 of fraction; from 2^-24 (subnormal below 2^-14) to 65504

source  Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", 2019; IEEE 754-2008, for the formats
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BITS = {"bfloat16": "uint16", "float16": "uint16"}
Bits = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]
NAN = 0x7FFF  # bits of every NaN, as GPUs round it


def widened(bits: Bits, dtype: str) -> Floats:
    """The numbers of `dtype` with these bits."""
    assert dtype in BITS, dtype
    if dtype == "float16":
        return np.ascontiguousarray(bits).view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrowed(values: Floats, dtype: str) -> Bits:
    """The bits of the numbers of `dtype` nearest to these values: ties to even, infinity past the largest."""
    assert dtype in BITS, dtype
    floats = np.ascontiguousarray(values, np.float32)
    if dtype == "float16":
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = floats.astype(np.float16).view(np.uint16)
    else:
        bits = floats.view(np.uint32)
        rounded = ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(floats), np.uint16(NAN), rounded)
