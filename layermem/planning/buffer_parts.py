"""Buffers that slices of the batch share, divided into the parts that each slice touches."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from layermem.graph.ops import BACKWARD, FORWARD, Graph, Op, unique
from layermem.ops import CARRY, OPEN, BatchSlice


class BufferParts:
    """Buffers of which slices of the batch touch their own items (Op.views), as one native value or gradient per slice,
    each with one writer.  Values of no bytes keep the writers of a buffer in order: the first one makes it, the others
    update it.  They also keep forward slices in the order that lets backward carry its sums from slice to slice, and
    complete a buffer that another op reads as a whole.  The carry of a forward slice is also a value per slice, read by
    the next one.  Ops of `left_out` do not count.

    writers   names of the forward ops that write a buffer
    ordered   names of forward ops in the order that they keep, by buffer; includes the carries of backward
    """

    def __init__(self, graph: Graph, left_out: Collection[str] = ()):
        self.items: dict[str, dict[BatchSlice, None]] = {}  # buffer -> the items of its parts
        self.writers: dict[str, list[str]] = {}
        for op in (op for op in graph.ops if op.name not in left_out):
            for buffer, items in self._views_of(op).items():
                self.items.setdefault(buffer, {})[items] = None
            for buffer in self.written_by(op) if op.kind == FORWARD else ():
                self.writers.setdefault(buffer, []).append(op.name)
        ran_forward = {op.node_run: op.name for op in graph.ops if op.kind == FORWARD and op.name not in left_out}
        self.ordered = {buffer: list(names) for buffer, names in self.writers.items()}
        for op in (op for op in graph.ops if op.kind == BACKWARD and op.name not in left_out):
            for buffer in (*carried_buffers(op), *self._shared_gradients(op)):
                names = self.ordered.setdefault(buffer, [])
                if ran_forward[op.node_run] not in names:  # slices in stages share their runs
                    names.insert(0, ran_forward[op.node_run])
        self.orders_of: dict[str, list[str]] = {}  # forward op -> the buffers
        for buffer, names in self.ordered.items():
            for name in names:
                self.orders_of.setdefault(name, []).append(buffer)

    def _shared_gradients(self, op: Op) -> list[str]:
        """Gradients whose own items a backward slice writes: an op that reads all items comes after it."""
        written = {*op.writes, *op.updates}
        return [*unique(op.roles[role] for role in op.views if op.roles[role] in written)]

    def named(self, buffer: str, nbytes: int) -> list[tuple[str, int]]:
        """The names and bytes of the parts of a buffer; the whole buffer if it has no parts."""
        parts = [(_part(buffer, items), items.fraction_of(nbytes)) for items in self.items.get(buffer, ())]
        return parts or [(buffer, nbytes)]

    def orders(self) -> list[str]:
        """Names of the values of no bytes."""
        return [f"{buffer} after {name}" for buffer, names in self.ordered.items() for name in names[:-1]]

    def before_next(self, op: Op) -> list[str]:
        """The values of no bytes that an op writes, because another op updates the buffer after it."""
        return [f"{b} after {op.name}" for b in self.orders_of.get(op.name, ()) if op.name in self.ordered[b][:-1]]

    def after_previous(self, op: Op) -> list[str]:
        """The values of no bytes that an op reads, because another op made or updated the buffer before it."""
        found = []
        for b in self.orders_of.get(op.name, ()):
            names = self.ordered[b]
            if op.name in names[1:]:
                found.append(f"{b} after {names[names.index(op.name) - 1]}")
        return found

    def of(self, op: Op, buffers: Iterable[str]) -> list[str]:
        """The parts of `buffers` that an op touches."""
        views, names = self._views_of(op), []
        for buffer in buffers:
            names += [_part(buffer, views[buffer])] if buffer in views else [n for n, _ in self.named(buffer, 0)]
        return names

    def read_by(self, op: Op) -> list[str]:
        """The parts that a forward op reads."""
        carried = (b for b in op.updates if b in carried_buffers(op))
        before = (
            replace(items, first=items.first - items.count) for items in [op.record.batch_slice] if items is not None
        )
        return [*self.of(op, op.reads), *(_part(b, items) for items in before for b in carried)]

    def written_by(self, op: Op) -> list[str]:
        """The buffers that an op writes, fully or in its own items."""
        views = self._views_of(op)
        return [*op.writes, *(b for b in op.updates if b in views)]

    @staticmethod
    def _views_of(op: Op) -> dict[str, BatchSlice]:
        """The buffers that an op touches only some items of, with these items."""
        batch_slice = op.record.batch_slice if op.kind == FORWARD else None
        return {**op.view_of, **({} if batch_slice is None else dict.fromkeys(carried_buffers(op), batch_slice))}


def carried_buffers(op: Op) -> set[str]:
    """The buffers of sums that slices of the batch carry from one to the next."""
    return {buffer for role, buffer in op.roles.items() if role.endswith((CARRY, OPEN))}


def _part(buffer: str, items: BatchSlice) -> str:
    return f"{buffer} ({items})"
