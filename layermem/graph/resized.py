"""A graph at any size of its batch, from those at two sizes.

What differs between the two is bytes, shapes and work: integers, in tensors and op records, that lie on a line over the
size.  All else is the same at every size: ops, roles, overlays.

    size        1              300                 561
    conv1       1x96x55x55     300x96x55x55        561x96x55x55         on the line
    conv1.w0    96x3x11x11     96x3x11x11          96x3x11x11           the same
    workspace   ...            ...                 of the record there  the device's answer, which need be no line

Other integers between the two would be refused: a graph whose ops, or whose sizes, change in another way has no lines,
and is built at every size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from layermem.graph.op_builder import Device
from layermem.graph.ops import Buffer, Graph, Op
from layermem.ops import MAX_COUNT, OpRecord

At = Callable[[int], Any]  # a value by size
Line = tuple[Any, At | None]  # the value at the second size, and what gives it at others; None if it is always the same


class NoLine(Exception):
    """Something is neither the same at two sizes nor on a line."""


class ResizedGraph:
    """`second`, and `first` at a smaller size, for other sizes; NoLine where they are not of one kind."""

    def __init__(self, first: Graph, second: Graph, sizes: tuple[int, int], device: Device):
        self.second, self.device = second, device
        if (
            list(first.buffers) != list(second.buffers)
            or first.device != second.device
            or first.slices != second.slices
        ):
            raise NoLine
        lines = Lines(sizes)
        self._buffers = {
            name: (buffer, lines.between(first.buffers[name].tensor, buffer.tensor)[1])
            for name, buffer in second.buffers.items()
        }
        for name, (buffer, _) in self._buffers.items():
            before = first.buffers[name]
            if replace(before, tensor=buffer.tensor, nbytes=buffer.nbytes) != buffer:
                raise NoLine
            if any(b.nbytes != device.nbytes(b.tensor) for b in (before, buffer)):
                raise NoLine
        self._ops = self._lines_of(first, second, first.ops, second.ops, lines)
        self._fused = self._lines_of(first, second, first.fused_updates, second.fused_updates, lines)
        self._less = None
        if first.less_fused is not None and second.less_fused is not None:
            self._less = ResizedGraph(first.less_fused, second.less_fused, sizes, device)

    def at(self, size: int) -> Graph:
        """The graph of `size`; NoLine where it would have a tensor of more elements than there may be."""
        buffers = {
            name: buffer if at is None else self._buffer(buffer, at(size))
            for name, (buffer, at) in self._buffers.items()
        }
        ops = tuple(op.at(size, buffers) for op in self._ops)
        fused = tuple(op.at(size, buffers) for op in self._fused)
        second = self.second
        less = None if self._less is None else self._less.at(size)
        return replace(second, buffers=buffers, ops=ops, fused_updates=fused, less_fused=less)

    def _buffer(self, buffer: Buffer, tensor: Any) -> Buffer:
        if tensor.count > MAX_COUNT:
            raise NoLine
        return Buffer(buffer.name, buffer.kind, tensor, self.device.nbytes(tensor), buffer.persistent, buffer.band_of)

    def _lines_of(
        self, first: Graph, second: Graph, befores: tuple[Op, ...], afters: tuple[Op, ...], lines: Lines
    ) -> list[_OpLines]:
        if len(befores) != len(afters):
            raise NoLine
        return [_OpLines((a, first), (b, second), lines, self.device) for a, b in zip(befores, afters)]


class _OpLines:
    """An op by size."""

    def __init__(self, first: tuple[Op, Graph], second: tuple[Op, Graph], lines: Lines, device: Device):
        (before, small), (self.op, large) = first, second
        self.device = device
        own = {"record", "flops", "nbytes", "workspace_bytes", "recompute"}
        if any(getattr(before, f.name) != getattr(self.op, f.name) for f in fields(Op) if f.name not in own):
            raise NoLine
        self.record = lines.between(before.record, self.op.record)[1]
        self.flops = lines.between(before.flops, self.op.flops)[1]
        # What its operands take, and little else; their bytes need not lie on a line, since they are rounded.
        self.traffic = (*self.op.reads, *self.op.updates, *self.op.updates, *self.op.writes)
        self.other_bytes = lines.between(
            before.nbytes - self._traffic_bytes(small.buffers), self.op.nbytes - self._traffic_bytes(large.buffers)
        )
        if any(each.workspace_bytes != self._workspace_bytes(each.record) for each in (before, self.op)):
            raise NoLine
        if (before.recompute is None) != (self.op.recompute is None):
            raise NoLine
        self.recompute: _OpLines | None = None
        if before.recompute is not None and self.op.recompute is not None:
            self.recompute = _OpLines((before.recompute, small), (self.op.recompute, large), lines, device)
        self.is_same = before == self.op

    def at(self, size: int, buffers: Mapping[str, Buffer]) -> Op:
        if self.is_same:
            return self.op
        op, record, other_bytes = self.op, self.op.record, self.other_bytes[0]
        workspace_bytes = op.workspace_bytes
        if self.record is not None:
            record = cast(OpRecord, self.record(size))
            workspace_bytes = self._workspace_bytes(record)
        if self.other_bytes[1] is not None:
            other_bytes = self.other_bytes[1](size)
        return Op(
            op.name,
            op.kind,
            record,
            op.step,
            op.roles,
            op.reads,
            op.writes,
            op.updates,
            op.accumulates,
            op.overlays,
            workspace_bytes,
            op.host_workspace_bytes,
            op.flops if self.flops is None else self.flops(size),
            self._traffic_bytes(buffers) + other_bytes,
            None if self.recompute is None else self.recompute.at(size, buffers),
            op.node,
            op.covers,
            op.layer_name,
            op.layer_type,
            op.layers,
            op.views,
            op.share_of,
            op.stream,
            op.passes,
            op.joins,
        )

    def _traffic_bytes(self, buffers: Mapping[str, Buffer]) -> int:
        return sum(buffers[name].nbytes for name in self.traffic)

    def _workspace_bytes(self, record: OpRecord) -> int:
        return self.device.workspace_bytes(record, self.op.step, self.op.roles.keys())


class Lines:
    """Values between two sizes; those of equal pairs are made once."""

    def __init__(self, sizes: tuple[int, int]):
        self.first, self.second = sizes
        self._made: dict[tuple[object, object], Line] = {}

    def between(self, before: Any, after: Any) -> Line:
        """`after`, and the function that gives it at other sizes."""
        if before == after:
            return after, None
        if isinstance(after, int):
            return self._number(before, after)
        key = before, after
        if key not in self._made:
            self._made[key] = self._parts(before, after)
        return self._made[key]

    def _number(self, before: Any, after: int) -> Line:
        steps = self.second - self.first
        if not isinstance(before, int) or isinstance(after, bool) or (after - before) % steps:
            raise NoLine
        growth = (after - before) // steps
        start = after - growth * self.second
        return after, lambda size: start + growth * size

    def _parts(self, before: Any, after: Any) -> Line:
        """Of a tuple or a record, whose parts lie on lines."""
        kind: Any = type(after)
        if type(before) is not kind:
            raise NoLine
        make: Callable[[list[Any]], Any] = tuple
        if kind is tuple and len(before) == len(after):
            values = list(zip(before, after))
        elif is_dataclass(kind) and all(f.init for f in fields(kind)):
            values = [(getattr(before, f.name), getattr(after, f.name)) for f in fields(kind)]
            make = _maker(kind)
        else:
            raise NoLine
        lines = [self.between(a, b) for a, b in values]
        known: list[tuple[int, Any]] = []  # the last size: records share what they are made of

        def at(size: int) -> Any:
            if not known or known[0][0] != size:
                known[:] = [(size, make([value if line is None else line(size) for value, line in lines]))]
            return known[0][1]

        return after, at


def _maker(kind: Any) -> Callable[[list[Any]], Any]:
    names = [f.name for f in fields(kind)]
    if any(f.kw_only for f in fields(kind)):
        return lambda values: kind(**dict(zip(names, values)))
    return lambda values: kind(*values)
