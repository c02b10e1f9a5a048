"""What the pieces of an op carry of the results that it sums along an axis, from each piece to the next one.

dw0.carry   the sum so far, as the device has it: the first piece writes it, the others update it
dw0.open    beside it, where a piece may end within a sum that must not be added before it is complete
dw0         the last piece makes it.  A sum that is carried in place is the result itself, incomplete; if the op
            adds to what the result holds, such a sum begins with that, and the first piece reads it
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from layermem.ops import CARRY, OPEN, BatchSlice, OpRecord


class Device(Protocol):
    """What carried sums need of a device."""

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None: ...

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int: ...

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool: ...


class Uncarried(Exception):
    """A device has no sum of the result of `role` by pieces."""

    def __init__(self, role: str):
        self.role = role


@dataclass(frozen=True)
class Carries:
    """
    sums      roles of the results
    sizes     bytes of what is carried of them, by role, such as "dw0.carry"; a device may carry none of some results,
              which it makes from what is carried of another one
    in_place  those of the sums that are carried in place
    begins    those of the sums that begin with what the result holds
    """

    sums: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, record: OpRecord, step: str, sums: Sequence[str], accumulates: Collection[str], device: Device
    ) -> Carries:
        """What pieces like `record` carry on `device`; Uncarried if it cannot."""
        sizes: dict[str, int] = {}
        for role in sums:
            nbytes = device.carry_bytes(record, step, role)
            if nbytes is None:
                raise Uncarried(role)
            carried = {role + CARRY: nbytes, role + OPEN: device.open_bytes(record, step, role)}
            sizes |= {name: size for name, size in carried.items() if size}
        own = [role for role in sums if role + CARRY in sizes]
        in_place = [role for role in own if device.sums_in_place(record, step, role, role in accumulates)]
        return cls(tuple(sums), sizes, tuple(in_place), tuple(role for role in in_place if role in accumulates))

    def has(self, role: str, part: BatchSlice) -> bool:
        """Whether the piece of `part` has the operand of `role`: only the last one has the result of a sum, and the
        first one what that begins with."""
        return role not in self.sums or part.is_last or (part.is_first and role in self.begins)

    def accumulates(self, roles: Collection[str], part: BatchSlice) -> tuple[str, ...]:
        """To which of `roles`, to which the whole op adds, a piece adds.  What is carried in place of a sum began with
        what that held, which the role of the carry says."""
        own = [role for role in roles if not role.endswith(CARRY) and (part.is_last or role not in self.sums)]
        return (*own, *(role + CARRY for role in own if role in self.in_place))
