"""Batch slices: a region of a training step runs its forward and backward in slices of whole items.

    region      some of the nodes, first .. last                 layers      data  conv1  pool1  ip  loss
    prefix      the rest runs once                               conv1..pool1/2
        data   conv1@2/2 pool1@2/2   conv1@1/2 pool1@1/2   ip loss, backward of both
        backward of pool1@1/2 conv1@1/2, of pool1@2/2 conv1@2/2   updates
    interleaved nothing behind the region has a backward         whole/2
        data   forward and backward of slice 1, then of slice 2   updates
    staged      a BatchNorm needs sums over all items            conv1..bn..conv2/2
        conv1 and the sums of slice 1, of slice 2, then the rest of both: graph/batch_norm_passes.py

What one slice alone touches is a piece with a residency of its own, `conv1@2/2`.  A buffer that crosses the border of
the region stays whole: slices touch views of it (Op.views), the first one writes it and the others update it.  What is
summed over the items (weight gradients, losses) is carried from slice to slice, always in the order of the items, and
the last slice makes the result of it (ops.OpRecord): the bits are those of the step without slices.  A gradient of
parameters that is larger than all that it is summed from is summed once, behind the slices; that stays whole.

The sliced graph is made from two graphs of one net: with the whole batch, and with that of one slice.
source  Oyama et al., "Accelerating Deep Learning Frameworks with Micro-batches" (mu-cuDNN), CLUSTER 2018, for one
        convolution at a time; Lym et al., "Mini-batch Serialization", MLSys 2019, for groups of layers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from sys import intern
from typing import Protocol

from layermem.errors import InputError
from layermem.graph import op_builder
from layermem.graph.batch_norm_passes import in_two_passes, is_first_pass, runs_again, stages
from layermem.graph.net import Net
from layermem.graph.ops import (
    BACKWARD,
    DATA,
    DIFF,
    FORWARD,
    GRADIENT,
    STASH,
    UPDATE,
    Buffer,
    BufferOverlay,
    Graph,
    Op,
    unique,
)
from layermem.graph.train import HOLD, with_updates
from layermem.ops import CARRY, OPEN, WHOLE, BatchSlice, CopyOut, Fill, OpRecord, Tensor, Update
from layermem.utils.similar import did_you_mean

ALL = "whole"  # how a Cut of all layers is written
FORM = "give it as FIRST..LAST/COUNT with names of layers, such as conv1_1..pool2/4, or as whole/4"
OTHERWISE = "slice other layers, as FIRST..LAST/COUNT, or none"
NUMBER = re.compile(r"@\d+/\d+$")  # of a slice, behind a name


class Device(op_builder.Device, Protocol):
    """What slices need of a device, beside what the training graph needs."""

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None: ...

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int: ...

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool: ...


@dataclass(frozen=True)
class Cut:
    """Layers `first` .. `last` run in `count` slices; "" is the first layer behind the data, or the last one."""

    first: str
    last: str
    count: int

    @classmethod
    def parse(cls, text: str) -> Cut:
        """The cut that `str` wrote: "conv1_1..pool2/4", "conv5../4", "..pool2/4", "whole/4", or "conv1/4" of one
        layer."""
        layers, _, count = text.strip().rpartition("/")
        first, dots, last = layers.partition("..")
        if not dots:
            first, last = ("", "") if layers == ALL else (layers, layers)
        if not layers or not count.isdecimal():
            raise InputError(f"slices '{text}' name no layers and a count; {FORM}")
        if int(count) < 2:
            raise InputError(f"slices '{text}' are {count}; cut the batch into 2 or more")
        return cls(first, last, int(count))

    @property
    def layers(self) -> str:
        """ "conv1_1..pool2", or "whole"."""
        return f"{self.first}..{self.last}" if self.first or self.last else ALL

    def __str__(self) -> str:
        return f"{self.layers}/{self.count}"


def sliced_graph(
    net: Net, make: Callable[[Net], Graph], cut: Cut, device: Device, with_items: Callable[[int], Net] | None = None
) -> Graph:
    """The graph that `make` gives for `net`, cut into slices; InputError, with the layer and its line, where it
    cannot be.  `with_items` is that of `net`, which a caller with many cuts may keep the results of."""
    if net.items % cut.count:
        sizes = [str(n) for n in range(2, min(net.items, 64) + 1) if net.items % n == 0]
        remedy = f"cut it into {', '.join(sizes[:-1]) + ' or ' * (len(sizes) > 1) + sizes[-1]}" if sizes else OTHERWISE
        raise InputError(
            f"has a batch of {net.items}, which {cut.count} slices cannot share equally; {remedy}", path=str(net.path)
        )
    each = net.items // cut.count
    try:
        small = (with_items or net.with_items)(each)
    except InputError as error:
        what = f"cannot be sliced: with a batch of {each}, it {error.what}"
        raise InputError(what, path=error.path, line=error.line, layer=error.layer) from None
    try:
        return slice_graph(make(net), make(small), cut, device, net.items)
    except InputError as error:
        raise net.placed(error) from None


def slice_graph(whole: Graph, small: Graph, cut: Cut, device: Device, items: int) -> Graph:
    """`whole`, of a batch of `items`, with the layers of `cut` in slices.

    small   the graph of the same net with a batch of items / cut.count
    Raises InputError for a layer that cannot be sliced.
    """
    return _Slicer(whole, small, cut, device, items).graph()


def whole_name(name: str) -> str:
    """The name of a buffer or an op without the number of its slice."""
    return NUMBER.sub("", name)


class _Slicer:
    """One cut of one graph."""

    def __init__(self, whole: Graph, small: Graph, cut: Cut, device: Device, items: int):
        self.cut, self.device = cut, device
        each = items // cut.count
        self.parts = [BatchSlice(i * each, each, items) for i in range(cut.count)]
        whole, small = (in_two_passes(graph, *self._range(whole), device) for graph in (whole, small))
        self.whole, self.small, self.sizes = whole, small.by_name, small.buffers
        self.first, self.last = self._range(whole)
        self.span = self.last - self.first + 1
        self.region = self._region()
        backward = list(whole.of_kind(BACKWARD))
        if backward and not any(op.name in self.region for op in backward):
            raise InputError(f"has no gradients in layers {cut.first}..{cut.last} to slice; {OTHERWISE}")
        self.late = self._late_sums()
        self.region -= self.late
        inside = [op for op in whole.ops if op.name in self.region]
        self.forward = [op for op in inside if op.kind == FORWARD]
        self.backward = [op for op in inside if op.kind == BACKWARD]
        outside = [op for op in whole.ops if op.name not in self.region]
        self.staged = any(is_first_pass(op) for op in inside)
        self.interleaved = not self.staged and not any(op.kind == BACKWARD and op.node > self.last for op in outside)
        self.touched_outside = {b for op in outside for b in op.touches}
        self.sums = {op.name: self._sums(op) for op in inside}
        self.summed = {op.roles[role] for op in inside for role in self.sums[op.name]}
        self.passed = {b for op in inside if is_first_pass(op) for b in op.touches if b in self.summed}
        self.made = {b for op in inside for b in (*op.writes, *op.updates)}
        self.constants = {op.roles["y0"] for op in self.backward if isinstance(op.record, Fill)}
        self.pieces: set[str] = set()  # buffers that one slice alone touches
        self.border: set[str] = set()  # those that slices touch views of
        for op in inside:
            self._classify(op)
        self.carries: dict[str, Buffer] = {}

    # -- the region --------------------------------------------------------------------------------------------

    def _range(self, graph: Graph) -> tuple[int, int]:
        """The first and the last node of the cut."""
        nodes: dict[str, list[int]] = {}
        for op in graph.of_kind(FORWARD):
            for name in op.layers:
                nodes.setdefault(name, []).append(op.node)
        for name in (self.cut.first, self.cut.last):
            if name and name not in nodes:
                hint = did_you_mean(name, nodes) or "`layermem show` lists the layers"
                raise InputError(f"has no layer '{name}' to slice at; {hint}")
        first = min(nodes[self.cut.first]) if self.cut.first else 0
        last = max(nodes[self.cut.last]) if self.cut.last else max(max(each) for each in nodes.values())
        if first > last:
            raise InputError(f"has layer '{self.cut.first}' behind '{self.cut.last}'; give the earlier one first")
        return first, last

    def _region(self) -> set[str]:
        """Names of the ops that run in slices: those of the nodes first .. last, without what fills blobs from outside
        or hands them to the host, and without what computes nothing for the backward at the end and mixes items."""
        of_node: dict[int, list[Op]] = {}
        sources: set[int] = set()
        for op in self.whole.ops:
            if not self.first <= op.node <= self.last or op.kind == UPDATE or op.node in sources:
                continue
            if not self._runs_once(op):
                of_node.setdefault(op.node, []).append(op)
            elif op.kind == FORWARD and not isinstance(op.record, CopyOut):
                sources.add(op.node)
        read = {
            b
            for op in self.whole.ops
            if op.node > self.last or op.kind == BACKWARD
            for b in (*op.reads, *op.updates)
            if not isinstance(op.record, CopyOut)
        }
        region: set[str] = set()
        for node in sorted(of_node, reverse=True):
            ops = of_node[node]
            needed = any(op.kind == BACKWARD for op in ops) or any(b in read for op in ops for b in op.writes)
            if not needed and any(op.record.batch_sums(op.step) is None for op in ops):
                continue  # such as an Accuracy: it runs once, behind the slices
            region.update(op.name for op in ops)
            read.update(b for op in ops for b in op.reads)
        return region

    def _runs_once(self, op: Op) -> bool:
        """Whether an op has nothing to do with the items, or is for the host."""
        if isinstance(op.record, CopyOut):
            return True
        reads_blobs = any(self.whole.buffers[b].kind in (DATA, DIFF) for b in (*op.reads, *op.updates))
        if isinstance(op.record, Fill):  # of the gradient of a loss, which has no items: each slice has its own
            others = [each for each in self.whole.ops if op.roles["y0"] in each.touches]
            inside = all(self.first <= each.node <= self.last and each.kind == BACKWARD for each in others)
            return not inside and not self._divided(op.roles["y0"])
        return not reads_blobs

    def _late_sums(self) -> set[str]:
        """Names of ops of the region that run once, behind the slices, on whole operands.  They sum gradients only, and
            go on from the complete sum of another layer, such as that of a weight which both have
            or have operands that take no more bytes than what slices would carry: many weights, and few images
            or have no sums by slices on this device
        So does all that is added to these gradients later."""
        sums = {op.name: self._summed_gradients(op) for op in self.whole.of_kind(BACKWARD) if op.name in self.region}
        fixed = {b for op in self.whole.ops if op.name in sums and not sums[op.name] for b in (*op.writes, *op.updates)}
        outside = {b for op in self.whole.ops if op.name not in self.region for b in op.touches}
        begun: set[str] = set()  # gradients that the slices of earlier ops sum
        ended: set[str] = set()  # and those to which no slice adds any more
        late: set[str] = set()
        for op in self.whole.of_kind(BACKWARD):
            gradients = sums.get(op.name, {})
            waits = any(
                name in ended or (name in begun and self._goes_on(op, role)) for role, name in gradients.items()
            )
            may_be_late = gradients and fixed.isdisjoint(gradients.values())
            if waits or (may_be_late and self._better_whole(op, gradients, outside)):
                late.add(op.name)
                ended.update(gradients.values())
            else:
                begun.update(gradients.values())
        return late

    def _summed_gradients(self, op: Op) -> dict[str, str]:
        """Gradients of parameters that `op` sums over the items, by role; none where it computes anything else."""
        sums = {role: op.roles[role] for role in op.record.batch_sums(op.step) or () if role in op.roles}
        return (
            sums if not is_first_pass(op) and all(name in sums.values() for name in (*op.writes, *op.updates)) else {}
        )

    def _goes_on(self, op: Op, role: str) -> bool:
        """Whether the slices of `op` begin with what the result is added to."""
        record = self._record_of_slice(op) if role in op.accumulates else None
        return record is not None and self.device.sums_in_place(record, op.step, role, True)

    def _better_whole(self, op: Op, gradients: Collection[str], outside: Collection[str]) -> bool:
        """Whether the operands of `op`, as far as they would be pieces, take no more bytes than what slices carry;
        `outside`: what ops outside the region touch."""
        record = self._record_of_slice(op)
        if record is None:
            return False
        carried = [self.device.carry_bytes(record, op.step, role) for role in gradients]
        nbytes = sum(self.whole.buffers[b].nbytes for b in self._operands(op) if b not in outside)
        return any(each is None for each in carried) or nbytes <= sum(each or 0 for each in carried)

    def _operands(self, op: Op) -> list[str]:
        return [b for b in unique(op.reads) if not self.whole.buffers[b].persistent]

    def _record_of_slice(self, op: Op) -> OpRecord | None:
        """The record of the first slice of `op`; None where slices do not have equal shares of all operands."""
        small = self.small.get(op.name)
        if small is None or any(not self._divided(b) for b in self._operands(op)):
            return None
        return small.record.of_slice(self.parts[0], op.record)

    def _sums(self, op: Op) -> frozenset[str]:
        """Roles of `op` whose result sums over the items."""
        sums = op.record.batch_sums(op.step)
        if sums is None:
            raise self._refusal(op, "mixes the items of a batch, and cannot be sliced")
        sums = frozenset(role for role in sums if role in op.roles)
        if sums and op.kind == FORWARD and not self.interleaved and not self.staged:
            raise self._refusal(
                op,
                "sums over the batch in forward, while layers behind the slices have a backward",
                ("end the slices before it, or slice the whole step"),
            )
        return sums

    def _refusal(self, op: Op, what: str, remedy: str = OTHERWISE) -> InputError:
        return InputError(f"{what}; {remedy}", layer=op.layers[0] if op.layers else op.name)

    # -- buffers -----------------------------------------------------------------------------------------------

    def _divided(self, buffer: str) -> bool:
        """Whether a slice has an equal share of axis 0 of `buffer`, and its other axes whole."""
        whole, small = self.whole.buffers[buffer].tensor.shape, self.sizes[buffer].tensor.shape
        return bool(whole) and (small[0] * self.cut.count, *small[1:]) == whole

    def _classify(self, op: Op) -> None:
        """Sort the buffers of an op of the region."""
        small = self.small.get(op.name)
        if small is None or dict(small.roles) != dict(op.roles) or small.step != op.step:
            raise self._refusal(op, f"computes otherwise with a batch of {self.parts[0].count}")
        for role, name in op.roles.items():
            buffer = self.whole.buffers[name]
            if role in self.sums[op.name] or role in op.record.counted_whole or name in self.passed:
                continue
            if name in self.summed:
                raise self._refusal(op, f"reads '{name}', which is there only when all slices have run")
            if buffer.persistent or buffer.kind == GRADIENT:
                if name in (*op.writes, *op.updates) or buffer.tensor != self.sizes[name].tensor:
                    raise self._refusal(op, f"has '{name}', which depends on the batch, and cannot be sliced")
            elif name not in self.touched_outside:
                if buffer.kind != STASH and name not in self.constants and not self._divided(name):
                    raise self._refusal(op, f"has '{name}' of {buffer.tensor}, which slices of the batch do not share")
                self.pieces.add(name)
            elif self._divided(name) and buffer.nbytes % self.parts[0].items == 0:
                self.border.add(name)
            elif name in (*op.writes, *op.updates) or buffer.tensor != self.sizes[name].tensor:
                raise self._refusal(op, f"has '{name}' of {buffer.tensor}, which slices of the batch do not share")
        for role in op.record.counted_whole:
            if op.roles[role] in self.made or not self._divided(op.roles[role]):
                raise self._refusal(
                    op,
                    f"counts all labels in '{op.roles[role]}', which is made slice by slice",
                    "give it a normalization of BATCH_SIZE or FULL, or slice other layers",
                )
            self.border.add(op.roles[role])

    # -- ops ---------------------------------------------------------------------------------------------------

    def _slice(self, op: Op, number: int, runs_first: bool) -> Op:
        """Slice `number` (from 0) of `op`; `runs_first`: no other slice of it runs before."""
        part, small, node = self.parts[number], self.small[op.name], self._node(op, number)
        form = self._form(op, small, part, number, runs_first)
        crosses = any(b in self.border for b in (*op.writes, *op.updates)) or self.sums[op.name]
        recompute = None
        if small.recompute is not None and op.recompute is not None and not crosses:
            recompute = replace(self._form(op.recompute, small.recompute, part, number, runs_first), node=node)
        form = replace(form, recompute=recompute, node=node)
        return runs_again(form, self.whole.buffers, op) if self.staged and not crosses else form

    def _form(self, op: Op, small: Op, part: BatchSlice, number: int, runs_first: bool) -> Op:
        """One form of an op, first run or recomputation, on the items of `part`."""
        name, record = self._name(op.name, number), small.record.of_slice(part, op.record)
        sums = {role for role in self.sums[op.name] if role in op.roles}
        roles: dict[str, str] = {}
        views: dict[str, BatchSlice] = {}
        for role, buffer in op.roles.items():
            if role in sums:
                roles |= self._carried(op, role, record)
                if part.is_last:
                    roles[role] = buffer
            else:
                roles[role] = self._name(buffer, number) if buffer in self.pieces else buffer
                if buffer in self.border:
                    views[role] = part
            if role in record.counted_whole:
                roles[role + WHOLE] = buffer
        carries = {role: roles[role + CARRY] for role in op.roles if role + CARRY in roles}
        carried = [*carries.values(), *(roles[role + OPEN] for role in carries if role + OPEN in roles)]
        in_place = {
            role for role in carries if self.device.sums_in_place(record, op.step, role, role in op.accumulates)
        }
        accumulated = [role for role in op.accumulates if role in in_place]
        begins = [role for role in accumulated if part.is_first]  # with what the gradient holds
        for role in accumulated:
            self._check_begins(op, role)
        roles |= {role: op.roles[role] for role in begins}
        taken = [] if accumulated or not part.is_last else self._results(op, carries, in_place)  # only read
        there = set(roles.values()) - {roles[role] for role in begins}

        def named(buffers: Iterable[str]) -> list[str]:
            return [b for b in (self._name(b, number) if b in self.pieces else b for b in buffers) if b in there]

        started = [] if runs_first else [b for b in op.writes if b in self.border]
        continued = () if part.is_first else (b for b in carried if b not in taken)
        updates = unique((*named(op.updates), *started, *continued))
        reads = unique((*named(op.reads), *(roles[role] for role in begins), *taken))
        begun = carried if part.is_first else ()
        form = replace(
            op,
            name=name,
            record=record,
            roles=roles,
            reads=tuple(b for b in reads if b not in updates),
            writes=unique((*named(b for b in op.writes if b not in started), *begun)),
            updates=updates,
            views=views,
            accumulates=self._accumulates(op, roles, part, in_place),
            overlays=(*self._overlays(small, number), *self._over_carries(op, carries, taken)),
            flops=small.flops,
            workspace_bytes=self.device.workspace_bytes(record, op.step, roles.keys()),
        )
        return replace(form, nbytes=small.nbytes + self._more_traffic(op, form, carried, part))

    def _more_traffic(self, op: Op, form: Op, carried: Iterable[str], part: BatchSlice) -> int:
        """Bytes that a slice reads and writes of sums and of what it carries of them, less those that `op` would."""

        def accesses(of: Op, buffer: str) -> int:
            return sum(n for names, n in ((of.reads, 1), (of.updates, 2), (of.writes, 1)) if buffer in names)

        results = unique(op.roles[role] for role in self.sums[op.name] if role in op.roles)
        more = sum(self.whole.buffers[b].nbytes * (accesses(form, b) - accesses(op, b)) for b in results)
        return more + sum(self.carries[b].nbytes * (1 if part.is_last else accesses(form, b)) for b in carried)

    def _accumulates(
        self, op: Op, roles: Mapping[str, str], part: BatchSlice, in_place: Collection[str]
    ) -> tuple[str, ...]:
        """Roles to which a slice adds: those of the whole op, in the last slice those of its sums.  What is carried in
        place of a sum began with what that held, which the role of the carry says."""
        sums = self.sums[op.name]
        own = [role for role in op.accumulates if role in roles and (part.is_last or role not in sums)]
        return (*own, *(role + CARRY for role in own if role in in_place))

    def _over_carries(self, op: Op, carries: Mapping[str, str], taken: Collection[str]) -> Iterator[BufferOverlay]:
        """The result of a sum may lie where slices carried it, if these are the sums themselves."""
        for role, carry in carries.items():
            result = self.whole.buffers[op.roles[role]]
            if carry in taken and not result.persistent:
                yield BufferOverlay(result.name, carry, "gradient")

    def _results(self, op: Op, carries: Mapping[str, str], in_place: Iterable[str]) -> list[str]:
        """The carries that hold the result itself when the last slice has been added."""
        sizes = {role: self.whole.buffers[op.roles[role]].nbytes for role in in_place}
        return [carries[role] for role, nbytes in sizes.items() if self.carries[carries[role]].nbytes == nbytes]

    def _check_begins(self, op: Op, role: str) -> None:
        """Sums that begin with what a gradient holds need it complete when the first slice runs."""
        gradient, before = op.roles[role], self.backward[: self.backward.index(op)]
        if any(gradient in (*each.writes, *each.updates) for each in before):
            raise self._refusal(op, f"adds to the gradient '{gradient}' of another layer in the slices")

    def _overlays(self, small: Op, number: int) -> tuple[BufferOverlay, ...]:
        return tuple(
            BufferOverlay(self._name(each.out, number), self._name(each.over, number), each.kind)
            for each in small.overlays
            if each.out in self.pieces and each.over in self.pieces
        )

    def _carried(self, op: Op, role: str, record: OpRecord) -> dict[str, str]:
        """The buffers that carry the sum of `role` from slice to slice of `op`, by role; none where the last slice
        makes it from what is carried of another role."""
        nbytes = self.device.carry_bytes(record, op.step, role)
        if nbytes is None:
            raise self._refusal(
                op, f"cannot be sliced on device {self.device.title}, which has no sum of '{op.roles[role]}' by slices"
            )
        sizes = {CARRY: nbytes, OPEN: self.device.open_bytes(record, op.step, role)}
        kind = STASH if op.kind == FORWARD else DIFF
        roles: dict[str, str] = {}
        for suffix in (each for each, size in sizes.items() if size):
            name = roles[role + suffix] = f"{op.name}.{role}{suffix}"
            self.carries[name] = Buffer(name, kind, Tensor((sizes[suffix],), "uint8"), sizes[suffix])
        return roles

    def _name(self, name: str, number: int) -> str:
        return intern(f"{name}@{number + 1}/{self.cut.count}")  # ops repeat the names of their buffers

    def _node(self, op: Op, number: int) -> int:
        """Nodes count through the slices in the order in which their forward runs; in stages, slices share them."""
        if self.staged:
            return op.node
        turn = number if self.interleaved else self.cut.count - 1 - number
        return op.node + turn * self.span

    # -- the graph ---------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        ops = self._ordered()
        buffers: dict[str, Buffer] = {}
        for name, buffer in self.whole.buffers.items():
            if name in self.pieces:
                for number in range(self.cut.count):
                    piece = self._name(name, number)
                    buffers[piece] = replace(self.sizes[name], name=piece)
            else:
                buffers[name] = buffer
        buffers |= self.carries
        fused = tuple(self._moved(op for op in self.whole.fused_updates if self.region.isdisjoint(op.covers)))
        return Graph(
            self.whole.name, buffers, tuple(ops), self.whole.device, self.whole.warnings, fused, slices=str(self.cut)
        )

    def _ordered(self) -> list[Op]:
        """All ops: what the region needs, its slices, the rest of forward and backward, and the updates."""
        before, after = self._forward_around()
        first, rest = self._backward_around()
        slices = range(self.cut.count)
        if self.staged:
            forward, backward = (
                [self._slice(op, i, i == 0) for stage in stages(ops) for i in slices for op in stage]
                for ops in (self.forward, self.backward)
            )
            ops = [*before, *forward, *after, *first, *backward, *rest]
        elif self.interleaved:
            inside = [self._slice(op, i, i == 0) for i in slices for op in (*self.forward, *self.backward)]
            ops = [*self._moved(before), *self._moved(first), *inside, *self._moved(after), *self._moved(rest)]
        else:
            last = slices[-1]
            ops = [
                *self._moved(before),
                *(self._slice(op, i, i == last) for i in reversed(slices) for op in self.forward),
                *self._moved(after),
                *self._moved(first),
                *(self._slice(op, i, i == 0) for i in slices for op in self.backward),
                *self._moved(rest),
            ]
        others = [op for op in self.whole.ops if op.kind == UPDATE]
        updates = [op for op in others if isinstance(op.record, Update)]
        sliced = {op.name for op in ops if op.record.part is not None} if self.staged else set()
        ops += [op for op in others if op not in updates and op.name != HOLD]
        return [*with_updates(ops, updates, sliced), *(op for op in others if op.name == HOLD)]

    def _forward_around(self) -> tuple[list[Op], list[Op]]:
        """Forward ops that run once, before the slices and after them: later layers, and what needs their output."""
        before: list[Op] = []
        after: list[Op] = []
        late = {b for op in self.forward for b in op.writes}
        for op in self.whole.of_kind(FORWARD):
            if op.name in self.region:
                continue
            if op.node > self.last or any(b in late for b in op.reads):
                after.append(op)
                late.update(op.writes)
            else:
                before.append(op)
        return before, after

    def _backward_around(self) -> tuple[list[Op], list[Op]]:
        """The same of backward ops: those of later layers and the weights of losses come before the slices."""
        position = self.whole.position
        start = position[self.backward[0].name] if self.backward else len(position)
        early: list[Op] = []
        rest: list[Op] = []
        for op in self.whole.of_kind(BACKWARD):
            if op.name not in self.region:
                (early if position[op.name] < start or isinstance(op.record, Fill) else rest).append(op)
        return early, rest

    def _moved(self, ops: Iterable[Op]) -> Iterator[Op]:
        """Ops that run once, each with the number that its node has behind the slices, or in the one that runs last."""
        shift = 0 if self.staged else (self.cut.count - 1) * self.span
        behind = self.late & {op.name for op in self._backward_around()[1]}
        for op in ops:
            if not behind.isdisjoint((op.name, *op.covers)):  # with the slice that runs last
                yield replace(op, node=op.node + shift * self.interleaved)
            elif op.node < self.first or (op.node <= self.last and op.kind == FORWARD and not op.reads):
                yield op
            else:
                recompute = None if op.recompute is None else replace(op.recompute, node=op.node + shift)
                yield replace(op, node=op.node + shift, recompute=recompute)
