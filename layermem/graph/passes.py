"""An op whose operands are not stored as its kernel takes them: passes over parts of its items, with copies of the
operands in the workspace (graph/storage.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from layermem.ops import CARRY, BatchSlice, OpRecord, Tensor


@dataclass(frozen=True)
class Operand:
    """What the kernel of a part has under one role.

    source   the op's role whose bytes these are, "" for what is only in the workspace
    tensor   as the kernel takes it
    stored   as it is in `source`
    divided  whether each part has its own items of `source`
    place    where it is in the workspace, None where the kernel works on `source` itself
    """

    source: str
    tensor: Tensor
    stored: Tensor
    divided: bool = False
    place: int | None = None
    reads: bool = False
    writes: bool = False


class Part(NamedTuple):
    """One run of a kernel.

    begins       where the operands of its items begin in their sources, in bytes, by role
    accumulates  roles whose result is added to what is there
    """

    record: OpRecord
    begins: Mapping[str, int]
    accumulates: tuple[str, ...]


@dataclass(frozen=True)
class Pass:
    """A kernel over all items of an op, part by part.

    whole     the record of the op, and `record` that of a batch of the items of one part;  step  of both
    items     that the op has;  count  items of a part
    operands  by role: all that some part has
    accumulates   roles of the op whose result is added to what is there
    sums      roles of results that are summed over the items
    begins    those of them that the first part reads, and in_place those that parts carry in the form of the result
    workspace_place, workspace_bytes   what the kernel itself uses
    """

    whole: OpRecord
    record: OpRecord
    step: str
    items: BatchSlice
    count: int
    operands: Mapping[str, Operand]
    accumulates: tuple[str, ...] = ()
    sums: frozenset[str] = frozenset()
    begins: frozenset[str] = frozenset()
    in_place: frozenset[str] = frozenset()
    workspace_place: int = 0
    workspace_bytes: int = 0

    @property
    def workspace_end(self) -> int:
        """Bytes of the workspace: copies of operands, what parts carry, and what the kernel uses."""
        return self.workspace_place + self.workspace_bytes

    @property
    def launches(self) -> int:
        """Kernels and conversions that it takes."""
        converted = sum(each.reads + each.writes for each in self.operands.values() if each.place is not None)
        return self.items.count // self.count * (1 + converted)

    def parts(self) -> Iterator[Part]:
        if self.count == self.items.count:
            yield Part(self.whole, dict.fromkeys(self.operands, 0), self.accumulates)
            return
        for first in range(0, self.items.count, self.count):
            part = BatchSlice(self.items.first + first, self.count, self.items.items)
            nbytes = {role: each.stored.nbytes if each.divided else 0 for role, each in self.operands.items()}
            begins = {role: first // self.count * nbytes[role] for role in self.roles(part)}
            yield Part(self.record_of(part), begins, self._accumulates(part))

    def record_of(self, part: BatchSlice) -> OpRecord:
        return self.record.of_slice(part, self.whole)

    def roles(self, part: BatchSlice) -> list[str]:
        """Those of one part: only the last one has the results of sums, and the first one what these begin with."""
        return [
            role
            for role in self.operands
            if role not in self.sums or part.is_last or (part.is_first and role in self.begins)
        ]

    def _accumulates(self, part: BatchSlice) -> tuple[str, ...]:
        """What is carried in place of a sum began with what that held: it is added to as the result is."""
        roles = set(self.roles(part))
        own = [
            role
            for role in self.accumulates
            if role in roles and not role.endswith(CARRY) and (part.is_last or role not in self.sums)
        ]
        return (*own, *(role + CARRY for role in own if role in self.in_place))
