"""Filter: items that the data select."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord


@dataclass(frozen=True)
class Filter(OpRecord):
    """forward   y{i} from x{i}, i < count, and x{count} (selector)      backward   dx{i} from dy{i}, x{count}"""

    count: int

    @property
    def refusal(self) -> str:
        return (
            "has tops whose batch size depends on the data, which a plan made before the first step cannot hold; show, "
            "plan, compare and fit take it with all items; to run the net, keep every item and give those to leave out "
            "a label that the loss ignores (ignore_label)"
        )
