"""A buffer filled with one value, such as the seed of a loss's gradient."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PIECES, Along, PerItem


@dataclass(frozen=True)
class Fill(PerItem):
    """fill   y0 = value (added where the op accumulates), times the loss scale of the step where it is `scaled`"""

    value: float
    scaled: bool = False

    def over_rows(self, step: str) -> Along:
        return PIECES
