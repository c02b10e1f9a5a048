"""Dropout: elements are zeroed by a counter-based random generator, so that a recomputation draws the same numbers."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PerItem, Tensor


@dataclass(frozen=True)
class Dropout(PerItem):
    """forward   y0 from x0        backward   dx0 from dy0

    threshold   32-bit words below it drop their element        scale     factor of the elements that stay
    stream      second word of the generator's key, by layer    identity  TEST phase: a copy
    """

    x: Tensor
    threshold: int
    scale: float
    stream: int
    identity: bool = False
