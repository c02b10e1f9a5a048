"""Instructions that are launched together: consecutive ops of a stream that join each other (Op.joins).

    tick 7  update  conv2.w0.update   after 5
    tick 8  update  conv2.w1.update            launched with tick 7
    tick 9  d2h     conv2.w0.h0       after 7

No instruction lies between them, so the first one can wait for everything that any of them waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from layermem.ops import MAX_JOINED
from layermem.schedule.ir import Instruction


def joined(instructions: Sequence[Instruction]) -> Iterator[list[Instruction]]:
    """Yield the instructions in order, in lists of those that are launched together."""
    for (_, joins), following in groupby(instructions, _joins):
        group = [*following]
        size = MAX_JOINED if joins else 1
        yield from (group[begin : begin + size] for begin in range(0, len(group), size))


def _joins(instruction: Instruction) -> tuple[str, str]:
    return instruction.stream, "" if instruction.op is None else instruction.op.joins
