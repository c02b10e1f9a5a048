"""Instructions that are launched as one: ops that join each other (Op.joins), where they follow each other on a stream.

    tick 7  update  conv2.w0.update   after 5
    tick 8  update  conv2.w1.update            launched with tick 7
    tick 9  d2h     conv2.w0.h0       after 7

Nothing lies between them, so what one of them waits for comes before the first, which waits for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from layermem.ops import MOST_JOINED
from layermem.schedule.ir import Instruction


def joined(instructions: Sequence[Instruction]) -> Iterator[list[Instruction]]:
    """The instructions in their order, those in one list that are launched together."""
    for (_, joins), following in groupby(instructions, _joins):
        group = [*following]
        size = MOST_JOINED if joins else 1
        yield from (group[begin : begin + size] for begin in range(0, len(group), size))


def _joins(instruction: Instruction) -> tuple[str, str]:
    return instruction.stream, "" if instruction.op is None else instruction.op.joins
