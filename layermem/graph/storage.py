"""Activations in 16 bits: blobs, their gradients and their stashes, in every tier of memory.

Ops still compute in fp32.  If the device has a kernel that takes the 16-bit operands directly (Device.takes), it widens
what it loads and rounds what it stores, and the op is unchanged.  Any other op on such a buffer runs as one or two
passes over parts of its items: the operands of a part are widened into the workspace, the kernel runs on them, and its
results are rounded to nearest even when they are stored.  Both ways give the same bits.  Parts are slices of the batch
(ops.OpRecord), so the results have the bits of the whole op, whatever the size of a part: sums are carried, and a
BatchNorm runs in its two passes.

    conv1_relu.forward     y = max(x, 0) by a kernel for 16 bits
    conv1.forward          widen x of items 0..3, y = x * w, round y    the same for items 4..7, ..
    conv1.wgrad            the workspace carries the sum from part to part; the last part writes dw0
    an op that mixes items, has operands whose items lie apart, or too few to divide: one part, with copies of its
    whole operands

Stored in 16 bits: fp32 blobs, gradients and stashes of two axes or more that depend on a parameter.  Stored in fp32:

    parameters, their gradients, optimizer state, sums, statistics, losses
    inputs, labels, and blobs that are computed from these alone
    outputs of layers without a backward, such as an ArgMax; the mask of a Pooling; buffers that are copied to the
    host or to other ranks

source  Micikevicius et al., "Mixed Precision Training", ICLR 2018; Kalamkar et al., "A Study of BFLOAT16 for Deep
        Learning Training", 2019
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from layermem.errors import InputError
from layermem.graph.batch_norm_passes import NORMS, in_two_passes
from layermem.graph.device import Device
from layermem.graph.net import Net
from layermem.graph.ops import DATA, DIFF, PARAMETER, STASH, Buffer, Graph, Op, Operand, Pass
from layermem.graph.partition import UNCUT, VIEW, Choices, Partition
from layermem.graph.slices import Items, whole_name
from layermem.layers.base import has_gradient
from layermem.ops import (
    CARRY,
    NARROW,
    OPEN,
    WHOLE,
    BatchSlice,
    Communication,
    CopyOut,
    EndsInRelu,
    Feed,
    Python,
    Silence,
    Tensor,
)
from layermem.utils.units import aligned

ALIGNED = 16  # bytes: alignment of parts of buffers that are not converted, for vector loads
AS_THEY_ARE = (Communication, CopyOut, Feed, Python)  # records whose operands the host or another rank reads or writes


class Storage:
    """Rewrites the graphs of a net for the device's storage of activations.

    net, make   the net of the graphs, and the function that makes the graph of the same net with another batch
    choices     whether an op runs in parts, and of how many items
    """

    def __init__(self, net: Net, make: Callable[[Net], Graph], device: Device, choices: Choices):
        self.net, self._make, self.device, self.choices = net, make, device, choices
        self._parts: dict[int, _PartGraph | None] = {net.items: None}
        self._made: dict[int, tuple[Graph, Graph]] = {}  # by identity of the graph, which the value keeps alive

    def of(self, graph: Graph) -> Graph:
        """`graph` with its activations stored as on the device."""
        if self.device.storage not in NARROW:
            return graph
        if id(graph) not in self._made:
            self._made[id(graph)] = graph, _Narrowing(graph, self).graph()
        return self._made[id(graph)][1]

    def has(self, graph: Graph) -> bool:
        """Whether of() was called for `graph` before."""
        return id(graph) in self._made

    def part_graph(self, count: int) -> _PartGraph | None:
        """The graph of the net with `count` items; None if there is no such net."""
        if count not in self._parts:
            try:
                self._parts[count] = _PartGraph(self._make(self.net.with_items(count)), self.device)
            except InputError:  # such as a Reshape to a fixed number of items
                self._parts[count] = None
        return self._parts[count]


class _Narrowing:
    """Rewrites one graph, with the help of graphs of parts of its batch."""

    def __init__(self, graph: Graph, storage: Storage):
        self.whole, self.storage, self.device, self.choices = graph, storage, storage.device, storage.choices
        self.dtype = NARROW[storage.device.storage]
        self.narrow = _narrow_buffers(graph)
        self._narrow_names = frozenset(map(whole_name, self.narrow))
        self._counts: dict[tuple[int, ...], int] = {}  # items of a part by node
        self._converted_of: dict[object, frozenset[str]] = {}  # by the arguments of Device.takes
        self._of_node: dict[tuple[int, ...], list[Op]] = {}
        for op in graph.ops:
            if self._converted(op):
                self._of_node.setdefault(op.node_run, []).append(op)
        largest = max((self._wide_bytes(op) for ops in self._of_node.values() for op in ops), default=0)
        self.part_bytes = self.choices.most_part_bytes(largest, self.device.part_bytes, self.device.least_parts)

    def graph(self) -> Graph:
        buffers = {name: self._stored(buffer) for name, buffer in self.whole.buffers.items()}
        ops, fused = (tuple(map(self._op, each)) for each in (self.whole.ops, self.whole.fused_updates))
        return replace(self.whole, buffers=buffers, ops=ops, fused_updates=fused)

    def _stored(self, buffer: Buffer) -> Buffer:
        if buffer.name not in self.narrow:
            return buffer
        tensor = buffer.tensor.of(self.dtype)
        return replace(buffer, tensor=tensor, nbytes=tensor.nbytes)

    # -- ops ---------------------------------------------------------------------------------------------------

    def _op(self, op: Op) -> Op:
        """`op` on 16-bit buffers, if it touches any: unchanged, or in passes over parts."""
        recompute = None if op.recompute is None else self._op(op.recompute)
        if not self._is_narrow(op):
            return replace(op, recompute=recompute) if recompute is not op.recompute else op
        if isinstance(op.record, EndsInRelu):
            op = replace(op, record=replace(op.record, relu_dtype=self._type_of_top(op)))
        overlays = tuple(each for each in op.overlays if (each.out in self.narrow) == (each.over in self.narrow))
        if not self._converted(op):
            saved = self._more_traffic(op)
            return replace(op, recompute=recompute, overlays=overlays, nbytes=op.nbytes + saved)
        passes = self._passes(op)
        carried = self._carried_on(op) if any(each.count > 1 for each in passes) else ()
        return replace(
            op,
            recompute=recompute,
            overlays=overlays,
            part_passes=passes,
            updates=(*op.updates, *carried),
            reads=tuple(b for b in op.reads if b not in carried),
            nbytes=op.nbytes + self._more_traffic(op),
            workspace_bytes=_workspace_bytes(passes),
        )

    def _type_of_top(self, op: Op) -> str:
        """The element type of the top; in backward, of the blob whose gradient is read."""
        buffer = op.roles.get("y0") or op.roles.get("dy0")
        if buffer is None:
            return self.dtype
        blob = whole_name(buffer).removesuffix(".diff")
        return self.dtype if blob in self._narrow_names else "float32"

    def _carried_on(self, op: Op) -> tuple[str, ...]:
        """The carries that `op` only reads: each of its parts except the last one also writes them."""
        carries = {b for role, b in op.roles.items() if role.endswith((CARRY, OPEN))}
        return tuple(b for b in op.reads if b in carries)

    def _is_narrow(self, op: Op) -> bool:
        return not isinstance(op.record, Silence) and not self.narrow.isdisjoint(op.touches)

    def _converted(self, op: Op) -> frozenset[str]:
        """The 16-bit buffers of `op` that its kernel takes in fp32."""
        if not self._is_narrow(op):
            return frozenset()
        key = (op.name, op.step, tuple(op.roles.items()), op.accumulates)
        if key not in self._converted_of:
            self._converted_of[key] = self.narrow.intersection(op.touches) - self._taken(op)
        return self._converted_of[key]

    def _taken(self, op: Op) -> frozenset[str]:
        """The 16-bit buffers that its kernel takes directly, in all of their roles; a written one has one role."""
        known = self.whole.buffers  # without the fp32 buffers between passes
        dtypes = {role: self._stored(known[b]).tensor.dtype for role, b in op.roles.items() if b in known}
        taken = self.device.takes(op.record, op.step, dtypes, op.accumulates)
        buffers = frozenset(op.roles[role] for role in taken)
        written = Counter(b for b in op.roles.values() if b in op.writes or b in op.updates)
        others = {b for role, b in op.roles.items() if role not in taken}
        return buffers if others.isdisjoint(buffers) and all(written[b] < 2 for b in buffers) else frozenset()

    def _more_traffic(self, op: Op) -> int:
        """Bytes that the op moves in addition to those of fp32 operands: conversions read and write, and a kernel that
        takes 16 bits moves less."""
        converted, total = self._converted(op), 0
        for b in op.accesses:
            if b in self.narrow:
                tensor = self.operand_tensor(op, next(role for role, buffer in op.roles.items() if buffer == b))
                wide, narrow = tensor.nbytes, tensor.of(self.dtype).nbytes
                total += wide + narrow if b in converted else narrow - wide
        return total

    def operand_tensor(self, op: Op, role: str) -> Tensor:
        """An operand of `op` in fp32."""
        tensor = self.whole.buffers[op.roles[role]].tensor
        return op.views[role].rows_of(tensor) if role in op.views else tensor

    def _passes(self, op: Op) -> tuple[Pass, ...]:
        whole = (self._pass(op, None, _Layout()),)
        try:
            divided = self._divided(op) or whole
        except InputError:
            return whole
        return divided if self.choices.runs_in_parts(*map(_workspace_bytes, (whole, divided))) else whole

    def _divided(self, op: Op) -> tuple[Pass, ...]:
        """The op in parts, () if there would be only one; InputError if it cannot be divided."""
        items = op.record.batch_slice or BatchSlice(0, self.storage.net.items, self.storage.net.items)
        count = self._count(op, items)
        small = self.storage.part_graph(count) if count < items.count else None
        like = None if small is None else small.op_like(op)
        if small is None or like is None:
            return ()
        buffers = {b: self.whole.buffers[b] for b in op.touches}
        alone = replace(self.whole, buffers=buffers, ops=(op,), fused_updates=())
        graph = in_two_passes(alone, range(op.node, op.node + 1), self.device)
        ops = tuple(replace(each, recompute=None, overlays=()) for each in graph.ops)
        layout = _Layout()
        for name in graph.buffers.keys() - buffers.keys():  # what passes leave to each other
            layout.take(graph.buffers[name].nbytes, name)
        tensors = {role: small.buffers[b].tensor for role, b in like.roles.items()}
        axis = _Parts(self, items, items.count // count, like, tensors)
        names = [each.name for each in ops]
        partition = Partition(replace(graph, ops=ops), axis, names, self.device)
        return tuple(self._pass(each, partition, replace(layout, places=dict(layout.places))) for each in ops)

    def _pass(self, op: Op, partition: Partition | None, layout: _Layout) -> Pass:
        if partition is None:
            operands = {role: self._operand(op, role, (), layout) for role in op.roles}
            alone = replace(op, recompute=None, views={})
            return Pass((alone,), 1, operands, layout.end, op.workspace_bytes)
        last = len(partition.axis.intervals) - 1
        numbers = sorted({0, 1, last}) if partition.sums[op.name] else [0]
        parts = [partition.piece(op, number, number == 0) for number in numbers]
        operands = {}
        for role, buffer in {**op.roles, **parts[0].roles}.items():
            if role.endswith(WHOLE):
                source = role if role in op.roles else role.removesuffix(WHOLE)
                operands[role] = self._operand(op, source, (), layout)
            elif buffer in self.whole.buffers:
                operands[role] = self._operand(op, role, parts, layout)
            else:
                own = partition.buffers.get(buffer) or partition.carried[buffer]
                operands[role] = Operand("", own.tensor, own.tensor, layout.take(own.nbytes, buffer))
        nbytes = max(part.workspace_bytes for part in parts)
        return Pass(tuple(parts), last + 1, operands, layout.end, nbytes)

    def _operand(self, op: Op, role: str, parts: Sequence[Op], layout: _Layout) -> Operand:
        """An operand in memory, converted if the kernel takes it in fp32; all roles of a buffer share one copy."""
        buffer, tensor = op.roles[role], self.operand_tensor(op, role)
        tensor = next((part.views[role].rows_of(tensor) for part in parts if role in part.views), tensor)
        reads = buffer in op.reads or buffer in op.updates or role in op.accumulates
        writes = buffer in op.updates or buffer in op.writes
        if buffer not in self.narrow:
            return Operand(role, tensor, tensor, None, reads, writes)
        stored, is_taken = tensor.of(self.dtype), buffer not in self._converted(op)
        place = None if is_taken else layout.take(tensor.nbytes, buffer)
        return Operand(role, stored if is_taken else tensor, stored, place, reads, writes)

    # -- parts -------------------------------------------------------------------------------------------------

    def _count(self, op: Op, items: BatchSlice) -> int:
        """Items of a part of `op`, and of all ops of its node."""
        if op.node_run not in self._counts:
            wide = max(map(self._wide_bytes, self._of_node.get(op.node_run, [op])))
            self._counts[op.node_run] = self.choices.part_items(items.count, wide, self.part_bytes)
        return self._counts[op.node_run]

    def _wide_bytes(self, op: Op) -> int:
        """Bytes in fp32 of the operands of `op` that are converted."""
        converted = self._converted(op)
        return sum(self.operand_tensor(op, role).nbytes for role, b in op.roles.items() if b in converted)


def _workspace_bytes(passes: Sequence[Pass]) -> int:
    return max(each.workspace_end for each in passes)


class _Parts(Items):
    """The items of one op in equal parts; each part has views of the operands that are divided.

    items   the items of the op
    like    the op with the items of a part;  tensors  its operands by role
    """

    def __init__(self, narrowing: _Narrowing, items: BatchSlice, count: int, like: Op, tensors: Mapping[str, Tensor]):
        self.narrowing, self.items, self.like, self.tensors = narrowing, items, like, tensors
        self.intervals = items.split(count)

    def lies(self, op: Op, role: str, crosses: bool) -> str:
        buffer = op.roles[role]
        if buffer not in self.narrowing.whole.buffers:  # what passes leave to each other
            return UNCUT
        whole = self.narrowing.operand_tensor(op, role)
        part = self.tensors.get(role, whole)
        if part == whole and (buffer in op.reads or role.endswith((CARRY, OPEN))):
            return UNCUT
        if crosses and buffer in self.narrowing.narrow:  # it would be converted in part and as a whole
            raise self.refusal(op, f"counts all labels in '{buffer}'")
        divides = part != whole and (part.shape[0] * len(self.intervals), *part.shape[1:]) == whole.shape
        if divides and (buffer in self.narrowing.narrow or part.nbytes % ALIGNED == 0):
            return VIEW
        raise self.refusal(op, f"has '{buffer}', which parts do not share")

    def view(self, whole: Buffer, number: int) -> BatchSlice:
        interval = self.intervals[number]
        return BatchSlice(interval.first - self.items.first, interval.count, self.items.count)

    def piece(self, op: Op, number: int, again: bool) -> Op:
        return replace(op, record=self.like.record.of_slice(self.intervals[number], op.record))


class _PartGraph:
    """The step with the batch of a part, with its BatchNorms both whole and in two passes."""

    def __init__(self, graph: Graph, device: Device):
        nodes = range(max((op.node for op in graph.ops), default=0) + 1)
        both = (graph, in_two_passes(graph, nodes, device))
        self.buffers = {name: buffer for each in both for name, buffer in each.buffers.items()}
        self._ops = {op.name: op for each in reversed(both) for op in each.ops}

    def op_like(self, op: Op) -> Op | None:
        """The op of the same name in the part's batch, without the number of its slice; None if there is none."""
        found = self._ops.get(whole_name(op.name))
        return found if found is not None and type(found.record) is type(op.record) else None


@dataclass
class _Layout:
    """Consecutive places in a workspace, by buffer, in bytes."""

    end: int = 0
    places: dict[str, int] = field(default_factory=dict)

    def take(self, nbytes: int, buffer: str) -> int:
        if buffer not in self.places:
            self.places[buffer], self.end = self.end, self.end + aligned(nbytes)
        return self.places[buffer]


# -- which buffers are narrow ------------------------------------------------------------------------------------------


def _narrow_buffers(graph: Graph) -> frozenset[str]:
    """Names of the buffers of `graph` that are stored in 16 bits."""
    as_they_are = {whole_name(b) for op in graph.ops if isinstance(op.record, AS_THEY_ARE) for b in op.touches}
    learned = {b.name for b in graph.buffers.values() if b.kind == PARAMETER}
    narrow: set[str] = set()  # base names
    for op in graph.ops:
        for name in op.writes if has_gradient(op.layer_type) else ():
            buffer, base = graph.buffers[name], whole_name(name)
            if any(op.roles.get(role) == name for role in op.record.indices):
                continue
            depends = isinstance(op.record, NORMS) or not learned.isdisjoint((*op.reads, *op.updates))
            if buffer.kind in (DATA, STASH) and depends:
                learned.add(name)
            blob = base.removesuffix(".diff")
            follows = blob in narrow if buffer.kind == DIFF else name in learned
            if follows and _is_activation(op, buffer) and (buffer.kind != DIFF or blob != base):
                narrow.add(base)
    names = (b.name for b in graph.buffers.values() if b.kind in (DATA, STASH, DIFF))
    return frozenset(name for name in names if whole_name(name) in narrow - as_they_are)


def _is_activation(op: Op, buffer: Buffer) -> bool:
    """Whether `op` writes at least one value per item and has further axes: it is no sum over items."""
    summed = op.record.over_items(op.step).sums
    if buffer.persistent or buffer.tensor.dtype != "float32" or len(buffer.tensor.shape) < 2:
        return False
    return prod(buffer.tensor.shape) > 0 and all(op.roles[role] != buffer.name for role in summed if role in op.roles)
