"""Row bands: weights of an InnerProduct, their gradient and optimizer state, as one buffer per band of rows.

    whole    fc6.forward   fc6.wgrad  fc6.dgrad  fc6.w0.update                 all rows of fc6.w0 at once, and of its
                                                                              gradient and its history
    bands    fc6.forward.rows2/2  fc6.forward.rows1/2  fc6.join                y = the columns of both, side by side
             fc6.wgrad  fc6.wgrad.rows1/2  fc6.dgrad.rows1/2  fc6.w0.rows1/2.update     fc6.wgrad: bias only
                        fc6.wgrad.rows2/2  fc6.dgrad.rows2/2  fc6.w0.rows2/2.update

A row of the weights belongs to one output, so forward and wgrad of a band compute the outputs of its rows only.  dx
sums over all outputs: dgrad of a band continues the sums of earlier bands if the device can add them in the order of
the whole op (ops.BandRules); otherwise one dgrad reads all bands, and only the gradient and the optimizer state are
divided.  Updates are elementwise.  All results have the bits of the whole op.

The bands of a persistent buffer together form the parameter (Buffer.band_of): runtime/runner.py reads and writes it as
one.  All graphs that share the arena have the same bands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from layermem.errors import InputError
from layermem.graph.device import Device
from layermem.graph.op_builder import on_roles, role_map
from layermem.graph.ops import BACKWARD, FORWARD, BandOf, Buffer, Graph, Op
from layermem.graph.partition import PIECE, Axis, Partition
from layermem.graph.rewrite import offer_updates
from layermem.graph.train import with_updates_placed
from layermem.ops import Along, BandRules, BatchSlice, Concat, InnerProduct, RowBand, Tensor, Update
from layermem.utils.numbers import is_count
from layermem.utils.similar import did_you_mean

ROWS = "/rows/"  # between the layer and the count, where the text of slices has bands
OTHERWISE = "give the rows of another InnerProduct, or none"


@dataclass(frozen=True)
class Bands:
    """The weights of `layer` are in `count` bands of rows."""

    layer: str
    count: int

    @classmethod
    def parse(cls, text: str, between: str = ROWS) -> Bands:
        """The bands that `str` wrote: "fc6/rows/8"; or, with "/" between layer and count, those of a user: "fc6/8"."""
        layer, _, count = text.strip().rpartition(between)
        if not layer or not is_count(count) or int(count) < 2:
            raise InputError(
                f"split weights '{text}' name no layer and a count of 2 or more; give them as LAYER/COUNT, such as "
                "fc6/8"
            )
        return cls(layer, int(count))

    @property
    def option(self) -> str:
        """The bands as users write them: "fc6/8"."""
        return f"{self.layer}/{self.count}"

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
        """The weights of a step in `bands`; InputError, with the layer, if the bits would change."""
        op = _layer_op(graph, bands.layer)
        record = op.record
        if not isinstance(record, InnerProduct):
            raise _refusal(bands.layer, f"is of type {op.layer_type}, and only an InnerProduct has row bands")
        if record.over_rows(op.step).refusal:
            raise _refusal(bands.layer, record.over_rows(op.step).refusal)
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
        """`graph` with these bands; unchanged if it does not contain the weights."""
        return _Rows(graph, self, device).graph() if self.weights in graph.buffers else graph


def _sizes(rows: int, bands: Bands, multiple: int) -> tuple[int, ...]:
    """Rows of each band: nearly equal multiples of `multiple`, except in the last band."""
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


class _Rows(Axis):
    """The rows of one layer's weights in one graph."""

    sums_in_results = True

    def __init__(self, graph: Graph, banded: BandedWeights, device: Device):
        self.whole, self.banded, self.device = graph, banded, device
        firsts, rows = accumulate((0, *banded.sizes)), sum(banded.sizes)
        self.intervals = [BatchSlice(first, size, rows) for first, size in zip(firsts, banded.sizes)]
        forward = [op for op in graph.of_kind(FORWARD) if banded.weights in op.roles.values()]
        if len(forward) > 1:  # in a test net; BandedWeights.of checks the training step
            raise _refusal(banded.layer, f"shares its weights with '{forward[1].layer_name}'")
        self.tops = {op.roles["y0"] for op in forward}
        gradient, states = f"{banded.weights}.diff", f"{banded.weights}.h"
        self.weights = {name for name in graph.buffers if name in (banded.weights, gradient) or name.startswith(states)}
        region = {op.name for op in graph.ops if not self.weights.isdisjoint(op.touches)}
        self.partition = Partition(graph, self, region, device)

    def refusal(self, op: Op, what: str, remedy: str = "") -> InputError:
        return _refusal(self.banded.layer, what)

    def along(self, op: Op) -> Along:
        along, rules = op.record.over_rows(op.step), self.banded.rules
        is_product = isinstance(op.record, InnerProduct)
        if not is_product and (along.refusal or op.kind == FORWARD):
            what = "clip_gradients reads" if op.name == "clip" else f"'{op.name}' reads"
            return Along(refusal=f"cannot have row bands where {what} all rows of them at once")
        if op.step == "dgrad" and op.accumulates and rules.sums_dx and not rules.adds_dx:
            gradient, title = op.roles["dx0"], self.device.title
            what = f"adds to '{gradient}' what other layers gave it, which row bands on device {title} cannot"
            return Along(refusal=what)
        return along

    def lies(self, op: Op, role: str, crosses: bool) -> str:
        return PIECE

    def name(self, name: str, number: int) -> str:
        return f"{name}.rows{number + 1}/{len(self.intervals)}"

    def buffer(self, whole: Buffer, number: int) -> Buffer:
        """The rows of a buffer with a row for each output, or the columns of a blob."""
        interval, name = self.intervals[number], self.name(whole.name, number)
        if whole.name in self.tops:
            tensor, band_of = self.columns(whole.tensor, number), None
        else:
            tensor, band_of = interval.rows_of(whole.tensor), BandOf(whole, interval.first)
        return replace(whole, name=name, tensor=tensor, nbytes=self.device.nbytes(tensor), band_of=band_of)

    def columns(self, tensor: Tensor, number: int) -> Tensor:
        return replace(tensor, shape=(*tensor.shape[:-1], self.intervals[number].count))

    def piece(self, op: Op, number: int, again: bool) -> Op:
        record, interval, weights = op.record, self.intervals[number], self.banded.weights
        name = self.name(op.name, number)
        if isinstance(record, InnerProduct):
            band = RowBand(interval.first, interval.items)
            record = replace(record, y=self.columns(record.y, number), outputs=interval.count, band=band)
        else:
            name = self.name(weights, number) + op.name.removeprefix(weights)
            if isinstance(record, Update):
                record = replace(record, tensor=interval.rows_of(record.tensor))
        share = interval.count / interval.items
        form = replace(
            op, name=name, record=record, flops=int(op.flops * share), share_of=(op.name, share), overlays=()
        )
        buffers, whole = self.whole.buffers, {op.roles[role] for role in self.along(op).whole if role in op.roles}
        touched = [b for b in op.accesses if b not in whole or b in op.reads]
        divided = {*self.weights, *self.tops}
        sizes = (self.buffer(buffers[b], number).nbytes if b in divided else buffers[b].nbytes for b in touched)
        return replace(form, nbytes=sum(sizes))

    # -- the graph -----------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        product = [op for op in self.whole.of_kind(BACKWARD) if self._is_product(op)]
        rising, ops = range(len(self.intervals)), list[Op]()
        for op in self.whole.ops:
            if op in product:
                ops += self._backward(product) if op is product[0] else ()
            elif op.name not in self.partition.region:
                ops.append(op)
            elif op.kind == FORWARD:
                ops += [*self.partition.run([op], rising[::-1]), self._join(op)]
            else:
                ops += self.partition.run([op], rising)
        graph = self.partition.graph(with_updates_placed(ops) if self.tops else ops)
        return offer_updates(graph, self.device) if product else graph

    def _is_product(self, op: Op) -> bool:
        """Whether `op` is wgrad or dgrad of the banded layer."""
        return isinstance(op.record, InnerProduct) and self.banded.layer in op.layers

    def _join(self, op: Op) -> Op:
        """Concatenate the columns of all bands."""
        y = self.whole.buffers[op.roles["y0"]]
        pieces = self.partition.pieces[y.name]
        firsts = tuple(interval.first for interval in self.intervals)
        record = Concat(y.tensor, tuple(each.tensor for each in pieces), len(y.tensor.shape) - 1, firsts)
        roles = {**role_map("x", [each.name for each in pieces]), "y0": y.name}
        name = f"{op.layer_name}.join"
        join = on_roles(replace(op, name=name, record=record, flops=0), roles, self.partition.buffers, self.device)
        join = replace(join, nbytes=2 * y.nbytes)
        return replace(join, recompute=join)

    def _backward(self, product: Sequence[Op]) -> Iterator[Op]:
        """Yield wgrad and dgrad band by band.  They follow the gradient of the bias, computed for all outputs at once,
        and, on a device without sums of dx over bands, one dgrad that reads all bands."""
        sums_dx = self.banded.rules.sums_dx
        for op in product:
            if "dw1" in op.roles:
                bias = {role: op.roles[role] for role in ("dy0", "dw1")}
                count = self.whole.buffers[op.roles["dy0"]].tensor.count
                yield on_roles(replace(op, flops=count), bias, self.partition.buffers, self.device)
        for op in product:
            if "dx0" in op.roles and not sums_dx:
                weights = [each.name for each in self.partition.pieces[op.roles["w0"]]]
                roles = {**{role: op.roles[role] for role in ("dy0", "dx0")}, **role_map("w", weights)}
                yield on_roles(replace(op, step="gathered_dgrad"), roles, self.partition.buffers, self.device)
        in_bands = [op for op in product if "dw0" in op.roles or ("dx0" in op.roles and sums_dx)]
        yield from self.partition.run(in_bands, range(len(self.intervals)))
