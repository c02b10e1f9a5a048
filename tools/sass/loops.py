"""The main loop of a kernel: copies to shared memory, a barrier, products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tools.sass.disassembly import Instruction, Kernel

PRODUCTS = ("HMMA", "FFMA")
COPY, BARRIER = "LDGSTS", "BAR"


class Loop(NamedTuple):
    """Instructions [begin, end); the last one is a branch back to the first."""

    begin: int
    end: int

    def of(self, code: Sequence[Instruction]) -> Sequence[Instruction]:
        return code[self.begin : self.end]


def loops(kernel: Kernel) -> list[Loop]:
    """Every branch back makes one."""
    found = []
    for index, each in enumerate(kernel.code):
        begin = kernel.labels.get(each.target) if each.name == "BRA" and each.target else None
        if begin is not None and begin <= index:
            found.append(Loop(begin, index + 1))
    return found


def product_of(kernel: Kernel) -> str | None:
    """HMMA where there is one, else FFMA."""
    names = {each.name for each in kernel.code}
    return next((product for product in PRODUCTS if product in names), None)


def main_loop(kernel: Kernel) -> Loop:
    """The smallest loop that copies, waits for all threads and multiplies; ValueError where there is none."""
    needed = {product_of(kernel), COPY, BARRIER}
    whole = [loop for loop in loops(kernel) if needed <= {each.name for each in loop.of(kernel.code)}]
    if not whole:
        raise ValueError(f"{kernel.name} has no loop that copies to shared memory and multiplies")
    return min(whole, key=lambda loop: loop.end - loop.begin)
