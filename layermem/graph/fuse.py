"""Layers that a device runs as one op, found in a net where nobody else looks between them: BatchNorm + Scale (+ ReLU);
Convolution, InnerProduct or an Eltwise sum + ReLU.

The net and the device decide, never a budget or a plan, so results do not depend on how memory is managed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from typing import Any

from layermem.graph.net import Net, Node
from layermem.layers import Layer
from layermem.layers.activation import ReLU
from layermem.layers.convolution import Convolution
from layermem.layers.eltwise import Eltwise
from layermem.layers.fused import BatchNormScale, Rectified
from layermem.layers.inner_product import InnerProduct
from layermem.layers.normalization import BatchNorm, Scale


def fused(net: Net, fuses: Collection[str], outputs: Collection[str] = ()) -> Net:
    """`net` with chains replaced by the ops in `fuses`; blobs in `outputs` are not fused away."""
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(net.nodes):
        for blob in node.bottoms:
            readers.setdefault(blob, []).append(index)

    def follower(node: Node) -> int | None:
        """The one node that reads the one top of `node`, if the blob between them matters to nobody else."""
        blob = node.tops[0]
        found = readers.get(blob, [])
        if len(found) != 1 or blob in outputs or any(node.loss_weights) or not all(net.nodes[found[0]].propagate):
            return None
        return found[0]

    replaced: dict[int, Node | None] = {}
    gone: set[str] = set()
    for index in range(len(net.nodes)):
        chain = _normalized(net, index, follower) or _rectified(net, index, follower)
        joined = _joined([net.nodes[i] for i in chain]) if chain else None
        if joined is not None and joined.layer.type in fuses:
            replaced |= dict.fromkeys(chain)
            replaced[chain[-1]] = joined
            gone |= {net.nodes[i].tops[0] for i in chain[:-1]}
    result = copy(net)
    nodes = [replaced.get(i, node) for i, node in enumerate(net.nodes)]
    result.nodes = [node for node in nodes if node is not None]
    result.blobs = {name: tensor for name, tensor in net.blobs.items() if name not in gone}
    return result


Follower = Callable[[Node], int | None]


def _normalized(net: Net, index: int, follower: Follower) -> list[int]:
    """Indices of a BatchNorm, its Scale and maybe its ReLU; empty if there is no such chain at `index`."""
    norm = net.nodes[index].layer
    if not isinstance(norm, BatchNorm) or norm.global_stats:
        return []
    second = follower(net.nodes[index])
    scale = net.nodes[second].layer if second is not None else None
    if second is None or not isinstance(scale, Scale) or scale.operand != "w0" or scale.bias is None:
        return []
    if [axis for axis in range(len(norm.tops[0].shape)) if axis not in scale.summed] != [1]:
        return []
    third = follower(net.nodes[second])
    relu = net.nodes[third].layer if third is not None else None
    if third is None or not isinstance(relu, ReLU) or relu.negative_slope:
        return [index, second]
    return [index, second, third]


def _rectified(net: Net, index: int, follower: Follower) -> list[int]:
    """Indices of a layer that makes sums and of its ReLU; empty if there is no such pair at `index`."""
    layer = net.nodes[index].layer
    sums = isinstance(layer, (Convolution, InnerProduct)) or (isinstance(layer, Eltwise) and layer.operation == "SUM")
    second = follower(net.nodes[index]) if sums and len(layer.tops) == 1 else None
    relu = net.nodes[second].layer if second is not None else None
    if second is None or not isinstance(relu, ReLU) or relu.negative_slope:
        return []
    return [index, second]


def _joined(nodes: list[Node]) -> Node:
    first, last = nodes[0], nodes[-1]
    layers: list[Any] = [node.layer for node in nodes]
    if isinstance(first.layer, BatchNorm):
        layer: Layer = BatchNormScale(layers[0], layers[1], layers[2] if len(layers) > 2 else None)
    else:
        layer = Rectified(layers[0], layers[1])
    params = tuple(name for node in nodes for name in node.params)
    return Node(layer, first.line, first.bottoms, last.tops, params, first.propagate, last.loss_weights)
