"""The ops of a range of layers that a user runs by hand: some layers forward, then some of them backward.

    forward     layers [begin, end); a blob from a layer before them is an input (Feed)
    hold        reads the blobs that the user may inspect, so that they are resident when the forward part ends
    backward    some of these layers in reverse; gradients of parameters are added up over all passes (held)
    hold        the same blobs and gradients, resident when the whole step ends

All ranges of a net have the same persistent buffers in the same order, so they share one arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layermem import ops
from layermem.graph import train
from layermem.graph.device import Device
from layermem.graph.fusion import fuse
from layermem.graph.needs import Needs, needs_of
from layermem.graph.net import Net
from layermem.graph.nodes import OpNode, op_nodes
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, PARAMETER, STATE, Graph
from layermem.graph.rewrite import rewrite
from layermem.graph.train import GraphBuilder
from layermem.graph.warnings import net_warnings
from layermem.layers import Step

__all__ = [
    "BACKWARD_HOLD",
    "FED_BLOB",
    "FED_DIFF",
    "FORWARD_HOLD",
    "BackwardRange",
    "LayerRange",
    "diff_buffer",
    "oldest_version",
    "outside_blobs",
    "range_graph",
    "range_outputs",
]

FORWARD_HOLD, BACKWARD_HOLD = "forward.hold", "backward.hold"  # names of ops
FED_BLOB, FED_DIFF = "blob ", "diff of "  # what precedes the name of a blob in the Feed of its data or gradient


@dataclass(frozen=True)
class BackwardRange:
    """Layers [begin, end) of a net by index, run in reverse.

    fed        blobs (versions) whose gradient the host gives
    data_only  gradients of parameters are left out, for example when a pass is repeated
    """

    begin: int
    end: int
    fed: tuple[str, ...] = ()
    data_only: bool = False


@dataclass(frozen=True)
class LayerRange:
    """Layers [begin, end) of a net by index, those that also run backward, and the blobs that are held.

    data    blobs (versions) to hold to the end of the step; outputs of the layers are always held
    diffs   names of blobs whose gradient is held to the end of the step
    unfused   blobs (versions), in addition to `data`, whose layer is not fused with their reader
    copied  blobs (versions) that are copied to the host as soon as they are computed
    copied_diffs   names of blobs whose gradient is copied to the host as soon as it is final
    """

    begin: int
    end: int
    backward: BackwardRange | None = None
    data: tuple[str, ...] = ()
    diffs: tuple[str, ...] = ()
    unfused: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    copied_diffs: tuple[str, ...] = ()


def range_graph(net: Net, device: Device, layer_range: LayerRange, *, gradients: bool) -> Graph:
    """The graph of `layer_range`.  `gradients`: declare the gradients of parameters even if no layer computes any."""
    layers = net.layers[layer_range.begin : layer_range.end]
    names = {node.layer.name for layer in layers for node in layer.nodes}
    nodes = [node for node in op_nodes(net) if node.layers[0].name in names]
    held = tuple(dict.fromkeys((*layer_range.data, *range_outputs(nodes))))
    nodes = fuse(nodes, device.fusions, {*held, *layer_range.copied, *layer_range.unfused, *_borders(net, layer_range)})
    needs = _needs(net, nodes, layer_range)
    build = _RangeBuilder(net, nodes, device, needs, True)
    build.declare(gradients)
    build.feed_outside()
    build.forward(layer_range.copied)
    build.hold(FORWARD_HOLD, FORWARD, held, len(nodes) - 1)
    if layer_range.backward is not None:
        build.feed_diffs(layer_range.backward.fed)
        build.backward()
        for name in layer_range.copied_diffs:
            build.copy_diff(name, layer_range.backward)
        diffs = build.diffs_of(layer_range.diffs, layer_range.backward)
        build.hold(BACKWARD_HOLD, BACKWARD, (*held, *diffs), len(nodes) - 1)
    return rewrite(build.graph("step" if layer_range.backward else "forward", net_warnings(net)), device)


def range_outputs(nodes: Sequence[OpNode]) -> list[str]:
    """Blobs of `nodes` that none of them reads."""
    read = {blob for node in nodes if node.tops for blob in node.bottoms}
    return [blob for node in nodes for blob in node.tops if blob not in read]


def outside_blobs(net: Net, layer_range: LayerRange) -> tuple[str, ...]:
    """Blobs (versions) that the layers read and that an earlier layer writes."""
    layers = net.layers[layer_range.begin : layer_range.end]
    made = {top for layer in layers for node in layer.nodes for top in node.tops}
    read = (bottom for layer in layers for node in layer.nodes for bottom in node.bottoms)
    return tuple(dict.fromkeys(blob for blob in read if blob not in made))


def oldest_version(net: Net, name: str, backward: BackwardRange) -> str | None:
    """The oldest version of blob `name` that the layers of `backward` read or write; None if there is none."""
    inside = net.layers[backward.begin : backward.end]
    touched = {blob for layer in inside for blob in (*layer.bottoms, *layer.tops)}
    return next((version for version in net.versions[name] if version in touched), None)


def diff_buffer(net: Net, name: str, graph: Graph, backward: BackwardRange) -> str | None:
    """The buffer with the gradient that Caffe has in the diff of `name` after `backward`: the one of the oldest version
    that its layers read or write; None if there is none."""
    oldest = oldest_version(net, name, backward)
    if oldest in (None, net.versions[name][0]):
        return train.diff_buffer(net, name, graph)
    return f"{oldest}.diff" if f"{oldest}.diff" in graph.buffers else None


def _borders(net: Net, layer_range: LayerRange) -> set[str]:
    """Blobs between a layer with a backward and one without; these layers are not fused."""
    if layer_range.backward is None:
        return set()
    inside = net.layers[layer_range.backward.begin : layer_range.backward.end]
    made = {top for layer in inside for node in layer.nodes for top in node.tops}
    read = {bottom for layer in inside for node in layer.nodes for bottom in node.bottoms}
    return {*layer_range.backward.fed, *(read - made)}


def _needs(net: Net, nodes: Sequence[OpNode], layer_range: LayerRange) -> Needs:
    backward = layer_range.backward
    if backward is None:
        return Needs.nothing(nodes)
    inside = net.layers[backward.begin : backward.end]
    names = {node.layer.name for layer in inside for node in layer.nodes}
    without = {layer.name for node in nodes for layer in node.layers} - names
    return needs_of(net, nodes, force_backward=True, fed=backward.fed, without=without, data_only=backward.data_only)


class _RangeBuilder(GraphBuilder):
    """Builds the ops of a range of layers."""

    def declare(self, gradients: bool) -> None:
        """Declare all persistent buffers of the net, in its order."""
        for name, owned in self.net.params.items():
            kind = STATE if owned.param.carried else PARAMETER
            self.ops.buffer(name, kind, owned.param.tensor, persistent=True)
        for name, owned in self.net.params.items():
            if gradients and owned.param.learned:
                self.ops.buffer(f"{name}.diff", GRADIENT, owned.param.tensor, persistent=True)

    def feed_outside(self) -> None:
        made = {top for node in self.nodes for top in node.tops}
        read = dict.fromkeys(blob for node in self.nodes for blob in node.bottoms if blob not in made)
        for blob in read:
            self.ops.buffer(blob, DATA, self.net.blobs[blob])
            step = Step("forward", (), ("y0",), record=ops.Feed(FED_BLOB + blob, 1))
            self.ops.add(f"{blob}.input", FORWARD, step, {"y0": blob}, node=0)

    def feed_diffs(self, blobs: Iterable[str]) -> None:
        """Read gradients from the host; the layer above does not seed them."""
        for blob in blobs:
            index = next(i for i, node in enumerate(self.nodes) if blob in node.tops)
            diff = self.ops.buffer(f"{blob}.diff", DIFF, self.net.blobs[blob])
            step = Step("forward", (), ("y0",), record=ops.Feed(FED_DIFF + blob, 1))
            self.ops.add(f"{diff}.input", BACKWARD, step, {"y0": diff}, node=index)
            self.seeded.add(blob)

    def diffs_of(self, names: Sequence[str], backward: BackwardRange) -> list[str]:
        """The buffers of the gradients of blobs, as far as they exist."""
        graph = self.graph("")
        found = (diff_buffer(self.net, name, graph, backward) for name in names)
        return [buffer for buffer in found if buffer is not None]

    def copy_diff(self, name: str, backward: BackwardRange) -> None:
        """Hand the gradient of blob `name` to the host after the last op that changes it."""
        buffer = diff_buffer(self.net, name, self.graph(""), backward)
        if buffer is not None:
            ops_ = self.ops.ops
            last = max(i for i, op in enumerate(ops_) if buffer in (*op.writes, *op.updates))
            step = Step("forward", ("x0",), (), record=ops.CopyOut(buffer))
            self.ops.add(f"{buffer}.output", BACKWARD, step, {"x0": buffer}, node=ops_[last].node)
            ops_.insert(last + 1, ops_.pop())
