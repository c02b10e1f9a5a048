"""Row bands: weights of an InnerProduct, their gradient and optimizer state, in bands of rows that are buffers alone.

    whole    fc6.forward   fc6.wgrad  fc6.dgrad  fc6.w0.update                 all rows of fc6.w0 at once, and of its
                                                                              gradient and its history
    bands    fc6.forward.rows2/2  fc6.forward.rows1/2  fc6.join                y = the columns of both, side by side
             fc6.wgrad  fc6.wgrad.rows1/2  fc6.dgrad.rows1/2  fc6.w0.rows1/2.update     fc6.wgrad: of the bias
                        fc6.wgrad.rows2/2  fc6.dgrad.rows2/2  fc6.w0.rows2/2.update

A row of the weights is an output: forward and wgrad of a band are those of its outputs.  dx sums over all outputs, and
dgrad of a band goes on with the sums of the bands before it, where the device has such a sum in the order of the whole
(ops.BandRules); elsewhere one dgrad reads all bands, and only the gradient and the optimizer state are in parts.
Updates work element by element.  So all bits are those of the whole.

The bands of a persistent buffer are the parameter together (Buffer.band_of): runtime/runner.py reads and writes it as
one.  All graphs that share the arena have the same bands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Protocol

from layermem.errors import InputError
from layermem.graph import op_builder
from layermem.graph.op_builder import role_map
from layermem.graph.ops import BACKWARD, FORWARD, BandOf, Buffer, Graph, Op, unique
from layermem.graph.rewrite import offer_updates
from layermem.graph.train import HOLD, with_updates
from layermem.ops import BandRules, Concat, Fill, InnerProduct, RowBand, Tensor, Update
from layermem.utils.similar import did_you_mean

ROWS = "/rows/"  # between the layer and the count, as users write bands
OTHERWISE = "give the rows of another InnerProduct, or none"


class Device(op_builder.Device, Protocol):
    """What bands need of a device, beside what the training graph needs."""

    def row_bands(self, record: InnerProduct) -> BandRules | None: ...


@dataclass(frozen=True)
class Bands:
    """The weights of `layer` are in `count` bands of rows."""

    layer: str
    count: int

    @classmethod
    def parse(cls, text: str) -> Bands:
        """The bands that `str` wrote: "fc6/rows/8"."""
        layer, _, count = text.strip().rpartition(ROWS)
        if not layer or not count.isdecimal() or int(count) < 2:
            raise InputError(
                f"rows '{text}' name no layer and a count of 2 or more; give them as LAYER/rows/COUNT, such as "
                "fc6/rows/8"
            )
        return cls(layer, int(count))

    def __str__(self) -> str:
        return f"{self.layer}{ROWS}{self.count}"


@dataclass(frozen=True)
class BandedWeights:
    """The weights called `weights`, of layer `layer`, in bands of `sizes` rows, and how a device computes them."""

    layer: str
    weights: str
    sizes: tuple[int, ...]
    rules: BandRules

    @classmethod
    def of(cls, graph: Graph, bands: Bands, device: Device) -> BandedWeights:
        """Those of a training step; InputError, with the layer, where the bits would not be those of the whole."""
        op = _layer_op(graph, bands.layer)
        record = op.record
        if not isinstance(record, InnerProduct):
            raise _refusal(bands.layer, f"is of type {op.layer_type}, and only an InnerProduct has row bands")
        if not record.by_rows:
            raise _refusal(bands.layer, "has transposed weights, or a bottom that is reordered for the product")
        rules = device.row_bands(record)
        if rules is None:
            raise _refusal(
                bands.layer, f"cannot have row bands on device {device.title}, which sums its gradient in parts"
            )
        weights = op.roles["w0"]
        for other in graph.ops:
            if bands.layer not in other.layers and weights in other.roles.values() and other.layers:
                raise _refusal(bands.layer, f"shares its weights with '{other.layers[0]}'")
        return cls(bands.layer, weights, _sizes(record.outputs, bands, rules.multiple), rules)

    def in_bands(self, graph: Graph, device: Device) -> Graph:
        """`graph` with these bands; as it is where it does not have the weights."""
        return _Bander(graph, self, device).graph() if self.weights in graph.buffers else graph


def _sizes(rows: int, bands: Bands, multiple: int) -> tuple[int, ...]:
    """Rows of each band: nearly equal multiples, but for the last one."""
    units = -(-rows // multiple)
    if bands.count > units:
        each = f" of {multiple} rows" * (multiple > 1)
        remedy = f"give 2 to {units} bands" if units > 2 else "give 2 bands" if units == 2 else OTHERWISE
        raise InputError(f"has {rows} outputs, too few for {bands.count} bands{each}; {remedy}", layer=bands.layer)
    ends = [min(rows, units * i // bands.count * multiple) for i in range(bands.count + 1)]
    return tuple(end - begin for begin, end in pairwise(ends))


def _layer_op(graph: Graph, layer: str) -> Op:
    """The forward op of a layer."""
    forward = {name: op for op in graph.of_kind(FORWARD) for name in op.layers}
    if layer not in forward:
        hint = did_you_mean(layer, forward) or "`layermem show` lists the layers"
        raise InputError(f"has no layer '{layer}' whose rows could be in bands; {hint}")
    return forward[layer]


def _refusal(layer: str, what: str) -> InputError:
    return InputError(f"{what}; {OTHERWISE}", layer=layer)


class _Bander:
    """One graph, and the bands of one layer's weights."""

    def __init__(self, graph: Graph, banded: BandedWeights, device: Device):
        self.whole, self.banded, self.device = graph, banded, device
        self.count = len(banded.sizes)
        *firsts, rows = accumulate((0, *banded.sizes))
        self.bands = [RowBand(first, rows) for first in firsts]
        gradient, states = f"{banded.weights}.diff", f"{banded.weights}.h"
        self.divided = {name for name in graph.buffers if name in (banded.weights, gradient) or name.startswith(states)}
        products = [op for op in graph.of_kind(FORWARD) if banded.weights in op.roles.values()]
        if len(products) > 1:  # in a test net; BandedWeights.of looks at the training step
            raise _refusal(banded.layer, f"shares its weights with '{products[1].layer_name}'")
        self.node = products[0].node if products else None
        self.tops = {op.roles["y0"] for op in products}
        self.buffers: dict[str, Buffer] = {}

    def graph(self) -> Graph:
        for name, buffer in self.whole.buffers.items():
            if name in self.divided:
                self._divide(buffer)
            else:
                self.buffers[name] = buffer
                if name in self.tops:
                    self._columns(buffer)
        ops: list[Op] = []
        product = [op for op in self.whole.of_kind(BACKWARD) if self._is_product(op)]
        for op in self.whole.ops:
            if op in product:
                ops += self._backward(product) if op is product[0] else ()
            else:
                ops += self._in_bands(op)
        graph = replace(self.whole, buffers=self.buffers, ops=tuple(self._ordered(ops)), fused_updates=())
        return offer_updates(graph, self.device) if product else graph

    def _ordered(self, ops: Sequence[Op]) -> Iterable[Op]:
        """`ops` with each update where its band is done."""
        if self.node is None:
            return ops
        updates = [op for op in ops if isinstance(op.record, Update)]
        others = [op for op in ops if op not in updates and op.name != HOLD]
        return [*with_updates(others, updates), *(op for op in ops if op.name == HOLD)]

    def _name(self, name: str, number: int) -> str:
        return f"{name}.rows{number + 1}/{self.count}"

    # -- buffers -------------------------------------------------------------------------------------------------------

    def _divide(self, buffer: Buffer) -> None:
        """The bands of a buffer with a row for each output."""
        _, *row = buffer.tensor.shape
        for number, size in enumerate(self.banded.sizes):
            tensor, name = replace(buffer.tensor, shape=(size, *row)), self._name(buffer.name, number)
            band_of = BandOf(buffer, self.bands[number].first)
            self.buffers[name] = replace(
                buffer, name=name, tensor=tensor, nbytes=self.device.nbytes(tensor), band_of=band_of
            )

    def _columns(self, buffer: Buffer) -> None:
        """The columns of each band of a blob with a column for each output."""
        for number in range(self.count):
            tensor, name = self._columns_of(buffer.tensor, number), self._name(buffer.name, number)
            self.buffers[name] = replace(buffer, name=name, tensor=tensor, nbytes=self.device.nbytes(tensor))

    def _columns_of(self, tensor: Tensor, number: int) -> Tensor:
        return replace(tensor, shape=(*tensor.shape[:-1], self.banded.sizes[number]))

    # -- ops -----------------------------------------------------------------------------------------------------------

    def _is_product(self, op: Op) -> bool:
        """Whether `op` is wgrad or dgrad of the layer."""
        return isinstance(op.record, InnerProduct) and self.banded.layer in op.layers

    def _in_bands(self, op: Op) -> Iterator[Op]:
        """An op that is none of the layer's backward: for each band, if it touches the weights."""
        if self.divided.isdisjoint(op.touches):
            yield self._moved(op)
        elif isinstance(op.record, (Update, Fill)):
            for number in range(self.count):
                yield self._elementwise(op, number)
        elif op.kind == FORWARD and isinstance(op.record, InnerProduct):
            for number in reversed(range(self.count)):
                recompute = None if op.recompute is None else self._forward(op.recompute, number)
                yield replace(self._forward(op, number), recompute=recompute)
            yield self._join(op)
        else:
            what = "clip_gradients reads" if op.name == "clip" else f"'{op.name}' reads"
            raise _refusal(self.banded.layer, f"cannot have row bands where {what} all rows of them at once")

    def _moved(self, op: Op) -> Op:
        """An op that stays as it is: its node counts behind those of the bands."""
        if self.node is None or op.node < self.node:
            return op
        recompute = None if op.recompute is None else replace(op.recompute, node=op.node + self.count)
        return replace(op, node=op.node + self.count, recompute=recompute)

    def _elementwise(self, op: Op, number: int) -> Op:
        """An update of a band, or what sets its gradient to a value."""
        name = self._name(self.banded.weights, number) + op.name.removeprefix(self.banded.weights)
        record = op.record
        if isinstance(record, Update):
            record = replace(record, tensor=self.buffers[self._name(self.banded.weights, number)].tensor)
        roles = {role: self._name(b, number) if b in self.divided else b for role, b in op.roles.items()}
        band = replace(op, name=name, record=record, share_of=(op.name, self._share(number)))
        return self._of(band, roles, op.node, int(op.flops * self._share(number)))

    def _forward(self, op: Op, number: int) -> Op:
        y = op.roles["y0"]
        roles = {**op.roles, "w0": self._name(op.roles["w0"], number), "y0": self._name(y, number)}
        return self._of_band(op, roles, number)

    def _join(self, op: Op) -> Op:
        """The columns of all bands, side by side."""
        y = self.whole.buffers[op.roles["y0"]]
        parts = [self._name(y.name, number) for number in range(self.count)]
        record = Concat(
            y.tensor,
            tuple(self.buffers[part].tensor for part in parts),
            len(y.tensor.shape) - 1,
            tuple(band.first for band in self.bands),
        )
        roles = {**role_map("x", parts), "y0": y.name}
        join = replace(
            op,
            name=f"{op.layer_name}.join",
            record=record,
            roles=roles,
            reads=tuple(parts),
            overlays=(),
            flops=0,
            workspace_bytes=self.device.workspace_bytes(record, op.step, roles.keys()),
            nbytes=2 * y.nbytes,
            node=self._moved(op).node,
            recompute=None,
        )
        return replace(join, recompute=join)

    def _backward(self, product: Sequence[Op]) -> Iterator[Op]:
        """wgrad and dgrad, band by band; before them what is not in bands."""
        sums_dx = self.banded.rules.sums_dx
        dgrads = [op for op in product if "dx0" in op.roles]
        yield from (self._bias(op) for op in product if "dw1" in op.roles)
        yield from (self._gathered(op) for op in dgrads if not sums_dx)
        for number in range(self.count):
            for op in product:
                if "dw0" in op.roles:
                    roles = {"x0": op.roles["x0"], "dy0": op.roles["dy0"], "dw0": self._name(op.roles["dw0"], number)}
                    yield self._of_band(op, roles, number)
            yield from (self._dgrad(op, number) for op in dgrads if sums_dx)

    def _bias(self, op: Op) -> Op:
        """The gradient of the bias, of all outputs at once."""
        roles = {role: op.roles[role] for role in ("dy0", "dw1")}
        return self._of(op, roles, self._moved(op).node, self.buffers[op.roles["dy0"]].tensor.count)

    def _dgrad(self, op: Op, number: int) -> Op:
        if op.accumulates and not self.banded.rules.adds_dx:
            raise _refusal(
                self.banded.layer,
                f"adds to '{op.roles['dx0']}' what other layers gave it, which row bands on device "
                f"{self.device.title} cannot",
            )
        band = self._of_band(op, {**op.roles, "w0": self._name(op.roles["w0"], number)}, number)
        return replace(band, writes=(), updates=(op.roles["dx0"],), accumulates=("dx0",)) if number else band

    def _gathered(self, op: Op) -> Op:
        """One dgrad that reads the bands of all."""
        weights = role_map("w", [self._name(op.roles["w0"], number) for number in range(self.count)])
        roles = {"dy0": op.roles["dy0"], "dx0": op.roles["dx0"], **weights}
        return self._of(replace(op, step="gathered_dgrad"), roles, self._moved(op).node, op.flops)

    def _share(self, number: int) -> float:
        """Of all rows, those of a band."""
        return self.banded.sizes[number] / sum(self.banded.sizes)

    def _of_band(self, op: Op, roles: Mapping[str, str], number: int) -> Op:
        """forward, wgrad or dgrad of one band."""
        record = op.record
        assert isinstance(record, InnerProduct) and self.node is not None
        if record.relu or record.residual:
            raise _refusal(self.banded.layer, "has an epilogue, which row bands leave to an op of its own")
        y = self._columns_of(record.y, number)
        band = replace(record, y=y, outputs=self.banded.sizes[number], band=self.bands[number])
        # Forward runs the bands from the last one to the first, as backward runs them from the first one on.
        node = self.node + self.count - 1 - number
        named = replace(op, name=self._name(op.name, number), record=band, share_of=(op.name, self._share(number)))
        return self._of(named, roles, node, int(op.flops * self._share(number)))

    def _of(self, op: Op, roles: Mapping[str, str], node: int, flops: int) -> Op:
        """`op` with other operands: each is read or written as that of its role is, further ones as w0."""

        def named(buffers: Sequence[str]) -> tuple[str, ...]:
            return unique(b for role, b in roles.items() if op.roles[role if role in op.roles else "w0"] in buffers)

        reads, updates, writes = named(op.reads), named(op.updates), named(op.writes)
        return replace(
            op,
            roles=dict(roles),
            reads=reads,
            updates=updates,
            writes=writes,
            node=node,
            flops=flops,
            recompute=None,
            accumulates=tuple(role for role in op.accumulates if role in roles),
            overlays=(),
            workspace_bytes=self.device.workspace_bytes(op.record, op.step, roles.keys()),
            nbytes=sum(self.buffers[b].nbytes for b in (*reads, *updates, *updates, *writes)),
        )
