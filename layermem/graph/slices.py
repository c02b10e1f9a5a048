"""Batch slices: a region of a training step runs forward and backward in slices of whole items.

    region      a range of the nodes                             layers      data  conv1  pool1  ip  loss
    prefix      the rest runs once                               conv1..pool1/2
        data   conv1@2/2 pool1@2/2   conv1@1/2 pool1@1/2   ip loss, backward of both
        backward of pool1@1/2 conv1@1/2, of pool1@2/2 conv1@2/2   updates
    alternating no layer after the region has a backward        whole/2
        data   forward and backward of slice 1, then of slice 2   updates
    staged      a BatchNorm needs sums over all items            conv1..bn..conv2/2
        conv1 and the sums of slice 1, of slice 2, then the rest of both: graph/batch_norm_passes.py

Slices are pieces along the items of the batch (partition.py); weight gradients and losses are sums over them.  A
parameter gradient that is larger than the operands it is summed from is summed once, after the slices; these operands
stay whole.

The sliced graph is made from two graphs of one net: one with the whole batch, one with the batch of a slice.
source  Oyama et al., "Accelerating Deep Learning Frameworks with Micro-batches" (mu-cuDNN), CLUSTER 2018, for one
        convolution at a time; Lym et al., "Mini-batch Serialization", MLSys 2019, for groups of layers
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from sys import intern

from layermem.errors import InputError
from layermem.graph.batch_norm_passes import in_two_passes
from layermem.graph.device import Device
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, SLICE, STASH, UPDATE, Buffer, Graph, Op, unique
from layermem.graph.partition import PIECE, UNCUT, VIEW, Axis, Choices, Partition
from layermem.ops import Along, BatchSlice, CopyOut, Fill, OpRecord
from layermem.utils.numbers import is_count
from layermem.utils.similar import did_you_mean

ALL = "whole"  # text of a Cut of all layers
FORM = "give it as FIRST..LAST/COUNT with names of layers, such as conv1_1..pool2/4, or as whole/4"
OTHERWISE = "slice other layers, as FIRST..LAST/COUNT, or none"


@dataclass(frozen=True)
class Cut:
    """Layers `first` to `last`, inclusive, run in `count` slices.  "" is the first layer after the data, or the last
    layer."""

    first: str
    last: str
    count: int

    @classmethod
    def parse(cls, text: str) -> Cut:
        """Parse the text of a cut, such as "conv1_1..pool2/4", "conv5../4", "..pool2/4", "whole/4", or "conv1/4" for
        one layer; InputError for another form."""
        layers, _, count = text.strip().rpartition("/")
        first, dots, last = layers.partition("..")
        if not dots:
            first, last = ("", "") if layers == ALL else (layers, layers)
        if not layers or not is_count(count):
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
    net: Net,
    make: Callable[[Net], Graph],
    cut: Cut,
    device: Device,
    choices: Choices,
    with_items: Callable[[int], Net] | None = None,
) -> Graph:
    """The graph that `make` returns for `net`, cut into slices; InputError, with the layer and its line, if it cannot
    be cut.  `with_items` replaces the method of `net`: a caller with many cuts may cache its results."""
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
        whole = make(net)
        nodes = _nodes(whole, cut, {node.layer.name: layer.name for layer in net.layers for node in layer.nodes})
        return _slice_graph(whole, make(small), cut, nodes, device, choices, net.items)
    except InputError as error:
        raise net.placed(error) from None


def whole_name(name: str) -> str:
    """The name of a buffer or an op without the number of its slice."""
    return SLICE.sub("", name)


def _slice_graph(
    whole: Graph, small: Graph, cut: Cut, nodes: range, device: Device, choices: Choices, items: int
) -> Graph:
    """`whole`, with a batch of `items`, in slices; `small` is the same graph with items / cut.count items."""
    whole, small = (in_two_passes(graph, nodes, device) for graph in (whole, small))
    return replace(_Slices(whole, small, cut, nodes, items, device, choices).partition().in_order(), slices=str(cut))


def _nodes(graph: Graph, cut: Cut, layer_of: Mapping[str, str]) -> range:
    """The nodes of a cut; `layer_of`: the name of the layer that each part belongs to (layers/composite.py)."""
    nodes: dict[str, list[int]] = {}
    for op in graph.of_kind(FORWARD):
        for name in op.layers:
            for each in {name, layer_of.get(name, name)}:
                nodes.setdefault(each, []).append(op.node)
    for name in (cut.first, cut.last):
        if name and name not in nodes:
            hint = did_you_mean(name, nodes) or "`layermem show` lists the layers"
            raise InputError(f"has no layer '{name}' to slice at; {hint}")
    first = min(nodes[cut.first]) if cut.first else 0
    last = max(nodes[cut.last]) if cut.last else max(max(each) for each in nodes.values())
    if first > last:
        raise InputError(f"has layer '{cut.first}' behind '{cut.last}'; give the earlier one first")
    return range(first, last + 1)


class Items(Axis):
    """The items of the batch."""

    remedy = OTHERWISE

    def along(self, op: Op) -> Along:
        return op.record.over_items(op.step)


class _Slices(Items):
    """The items of the batch of `whole` in the slices of a cut; `small` is the graph of one slice's items."""

    def __init__(
        self, whole: Graph, small: Graph, cut: Cut, nodes: range, items: int, device: Device, choices: Choices
    ):
        self.whole, self.small, self.cut, self.nodes = whole, small, cut, nodes
        self.device, self.choices = device, choices
        self.intervals = BatchSlice(0, items, items).split(cut.count)
        backward = whole.of_kind(BACKWARD)
        self.constants = {op.roles["y0"] for op in backward if isinstance(op.record, Fill)}  # each slice has its own

    def lies(self, op: Op, role: str, crosses: bool) -> str:
        small, name = self.small.by_name.get(op.name), op.roles[role]
        buffer = self.whole.buffers[name]
        if small is None or dict(small.roles) != dict(op.roles) or small.step != op.step:
            raise self.refusal(op, f"computes otherwise with a batch of {self.intervals[0].count}")
        outlives = buffer.persistent or buffer.kind == GRADIENT
        if crosses and not outlives and self.divides(name) and buffer.nbytes % self.intervals[0].items == 0:
            return VIEW
        if not crosses and not outlives and (buffer.kind == STASH or name in self.constants or self.divides(name)):
            return PIECE
        if name in (*op.writes, *op.updates) or buffer.tensor != self.small.buffers[name].tensor:
            raise self.refusal(op, f"has '{name}' of {buffer.tensor}, which slices of the batch do not share")
        return UNCUT

    def divides(self, buffer: str) -> bool:
        """Whether a slice has an equal share of axis 0 of `buffer`, and all of its other axes."""
        if buffer not in self.small.buffers:  # the steps of a recurrent layer are divided otherwise
            return False
        whole, small = self.whole.buffers[buffer].tensor.shape, self.small.buffers[buffer].tensor.shape
        return bool(whole) and (small[0] * len(self.intervals), *small[1:]) == whole

    def name(self, name: str, number: int) -> str:
        return intern(f"{name}@{number + 1}/{len(self.intervals)}")  # ops repeat the names of their buffers

    def buffer(self, whole: Buffer, number: int) -> Buffer:
        return replace(self.small.buffers[whole.name], name=self.name(whole.name, number))

    def piece(self, op: Op, number: int, again: bool) -> Op:
        small = self.small.by_name[op.name]
        small = (small.recompute or small) if again else small
        record = small.record.of_slice(self.intervals[number], op.record)
        name = self.name(op.name, number)
        return replace(op, name=name, record=record, flops=small.flops, nbytes=small.nbytes, overlays=small.overlays)

    # -- which ops run in slices ---------------------------------------------------------------------------------------

    def partition(self) -> Partition:
        names = self._names()
        backward = self.whole.of_kind(BACKWARD)
        if backward and not any(op.name in names for op in backward):
            raise InputError(f"has no gradients in layers {self.cut.first}..{self.cut.last} to slice; {OTHERWISE}")
        late = self._late_sums(names)
        return Partition(self.whole, self, names - late, self.device, self.nodes, late)

    def _names(self) -> set[str]:
        """Names of the ops that run in slices: the ops of the nodes of the cut, except those that exchange blobs with
        the host, and those that mix items and contribute nothing to the backward pass."""
        of_node: dict[int, list[Op]] = {}
        sources: set[int] = set()
        for op in self.whole.ops:
            if op.node not in self.nodes or op.kind == UPDATE or op.node in sources:
                continue
            if not self._runs_once(op):
                of_node.setdefault(op.node, []).append(op)
            elif op.kind == FORWARD and not isinstance(op.record, CopyOut):
                sources.add(op.node)
        read = {
            b
            for op in self.whole.ops
            if op.node >= self.nodes.stop or op.kind == BACKWARD
            for b in (*op.reads, *op.updates)
            if not isinstance(op.record, CopyOut)
        }
        region: set[str] = set()
        for node in sorted(of_node, reverse=True):
            ops = of_node[node]
            needed = any(op.kind == BACKWARD for op in ops) or any(b in read for op in ops for b in op.writes)
            if not needed and any(self.along(op).refusal for op in ops):
                continue  # such as an Accuracy: it runs once, after the slices
            region.update(op.name for op in ops)
            read.update(b for op in ops for b in op.reads)
        return region

    def _runs_once(self, op: Op) -> bool:
        """Whether an op does not depend on the items, or copies data to the host."""
        if isinstance(op.record, CopyOut):
            return True
        reads_blobs = any(self.whole.buffers[b].kind in (DATA, DIFF) for b in (*op.reads, *op.updates))
        if isinstance(op.record, Fill):  # a loss gradient has no items: each slice has its own
            others = [each for each in self.whole.ops if op.roles["y0"] in each.touches]
            inside = all(each.node in self.nodes and each.kind == BACKWARD for each in others)
            return not inside and not self.divides(op.roles["y0"])
        return not reads_blobs

    def _late_sums(self, region: Collection[str]) -> set[str]:
        """Names of ops of `region` that run once, after the slices, on whole operands.  They sum only gradients, and
            continue the complete sum of another layer, for example of a shared weight
            or run once because their operands take fewer bytes than the carries would (Choices.sums_once)
        Ops that later add to these gradients run once as well."""
        sums = {op.name: self._summed_gradients(op) for op in self.whole.of_kind(BACKWARD) if op.name in region}
        fixed = {b for op in self.whole.ops if op.name in sums and not sums[op.name] for b in (*op.writes, *op.updates)}
        outside = {b for op in self.whole.ops if op.name not in region for b in op.touches}
        begun: set[str] = set()  # gradients that the slices of earlier ops sum
        ended: set[str] = set()  # gradients that no slice adds to any more
        late: set[str] = set()
        for op in self.whole.of_kind(BACKWARD):
            gradients = sums.get(op.name, {})
            waits = any(
                name in ended or (name in begun and self._goes_on(op, role)) for role, name in gradients.items()
            )
            may_be_late = gradients and fixed.isdisjoint(gradients.values())
            if waits or (may_be_late and self._sums_once(op, gradients, outside)):
                late.add(op.name)
                ended.update(gradients.values())
            else:
                begun.update(gradients.values())
        return late

    def _summed_gradients(self, op: Op) -> dict[str, str]:
        """Gradients of parameters that `op` sums over the items, by role; empty if it also computes anything else."""
        sums = {role: op.roles[role] for role in self.along(op).sums if role in op.roles}
        made = (*op.writes, *op.updates)
        alone = all(name in sums.values() and self.whole.buffers[name].kind == GRADIENT for name in made)
        return sums if alone else {}

    def _goes_on(self, op: Op, role: str) -> bool:
        """Whether the slices of `op` start with the value that the result is added to."""
        record = self._record_of_slice(op) if role in op.accumulates else None
        return record is not None and self.device.sums_in_place(record, op.step, role, True)

    def _sums_once(self, op: Op, gradients: Collection[str], outside: Collection[str]) -> bool:
        """Whether a sum over the items had better run once on whole operands, by Choices.sums_once: on the bytes of
        the operands of `op` without those in `outside`, and of the carries of `gradients`.  False if slices of `op`
        have unequal shares of an operand.

        outside   buffers that ops outside the region touch, which stay whole in any case
        """
        record = self._record_of_slice(op)
        if record is None or self.along(op).scattered:
            return False
        carried = [self.device.carry_bytes(record, op.step, role) for role in gradients]
        nbytes = sum(self.whole.buffers[b].nbytes for b in self._operands(op) if b not in outside)
        return self.choices.sums_once(nbytes, carried)

    def _operands(self, op: Op) -> list[str]:
        return [b for b in unique(op.reads) if not self.whole.buffers[b].persistent]

    def _record_of_slice(self, op: Op) -> OpRecord | None:
        """The record of the first slice of `op`; None unless slices have equal shares of all operands."""
        small = self.small.by_name.get(op.name)
        if small is None or any(not self.divides(b) for b in self._operands(op)):
            return None
        return small.record.of_slice(self.intervals[0], op.record)
