"""Layers that a device runs as one op, found in a net: BatchNorm + Scale (+ ReLU), where nobody else looks between.

The net and the device decide, never a budget or a plan, so results do not depend on how memory is managed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy

from layermem.graph.net import Net, Node
from layermem.layers.activation import ReLU
from layermem.layers.fused import BatchNormScale
from layermem.layers.normalization import BatchNorm, Scale


def fused(net: Net, fuses: Collection[str], outputs: Collection[str] = ()) -> Net:
    """`net` with chains replaced by the ops in `fuses`; blobs in `outputs` are not fused away."""
    if BatchNormScale.type not in fuses:
        return net
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
        chain = _chain(net, index, follower)
        if chain:
            replaced |= dict.fromkeys(chain)
            replaced[chain[-1]] = _joined([net.nodes[i] for i in chain])
            gone |= {net.nodes[i].tops[0] for i in chain[:-1]}
    result = copy(net)
    nodes = [replaced.get(i, node) for i, node in enumerate(net.nodes)]
    result.nodes = [node for node in nodes if node is not None]
    result.blobs = {name: tensor for name, tensor in net.blobs.items() if name not in gone}
    return result


def _chain(net: Net, index: int, follower: Callable[[Node], int | None]) -> list[int]:
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


def _joined(nodes: list[Node]) -> Node:
    norm, scale, *rest = nodes
    last = nodes[-1]
    layer = BatchNormScale(norm.layer, scale.layer, rest[0].layer if rest else None)  # type: ignore[arg-type]
    return Node(
        layer, norm.line, norm.bottoms, last.tops, (*norm.params, *scale.params), norm.propagate, last.loss_weights
    )
