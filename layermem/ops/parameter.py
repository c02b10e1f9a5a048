"""Parameter: a learned blob as a top."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor


@dataclass(frozen=True)
class Parameter(OpRecord):
    """forward   y0 = w0        wgrad   dw0 = dy0"""

    x: Tensor
