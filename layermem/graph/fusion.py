"""Layers that a device runs as one op, found in a net where nobody else looks between them:

    BatchNorm + Scale (+ ReLU)
    Convolution, InnerProduct or an Eltwise sum + ReLU
    BatchNorm + Scale, Convolution or InnerProduct + the sum with another blob (+ ReLU)

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
from layermem.layers.fused import BatchNormScale, Rectified, Summed
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
        for chain in _chains(net, index, follower):
            joined = _joined([net.nodes[i] for i in chain])
            if joined.layer.type in fuses and not replaced.keys() & set(chain):
                replaced |= dict.fromkeys(chain)
                replaced[chain[-1]] = joined
                gone |= {net.nodes[i].tops[0] for i in chain[:-1]}
                break
    result = copy(net)
    nodes = [replaced.get(i, node) for i, node in enumerate(net.nodes)]
    result.nodes = [node for node in nodes if node is not None]
    result.blobs = {name: tensor for name, tensor in net.blobs.items() if name not in gone}
    return result


Follower = Callable[[Node], int | None]


def _chains(net: Net, index: int, follower: Follower) -> list[list[int]]:
    """Indices of nodes that may be one op, the first of them `index`; the longest chain first."""
    layer = net.nodes[index].layer
    found: list[list[int]] = []
    if isinstance(layer, BatchNorm):
        found = _normalized(net, index, follower)
    elif isinstance(layer, (Convolution, InnerProduct)) and len(layer.tops) == 1:
        found = [[index]]
    elif isinstance(layer, Eltwise) and layer.operation == "SUM":
        return _with_relu(net, [index], follower)
    for chain in found:
        found = [*_summed(net, chain, follower), *_with_relu(net, chain, follower), *found]
    return [chain for chain in found if len(chain) > 1]


def _with_relu(net: Net, chain: list[int], follower: Follower) -> list[list[int]]:
    """The chain and the ReLU without a slope that alone reads it, if there is one."""
    last = follower(net.nodes[chain[-1]])
    relu = net.nodes[last].layer if last is not None else None
    return [[*chain, last]] if last is not None and isinstance(relu, ReLU) and not relu.negative_slope else []


def _normalized(net: Net, index: int, follower: Follower) -> list[list[int]]:
    """A BatchNorm and its Scale, if there is such a chain at `index`."""
    norm = net.nodes[index].layer
    if not isinstance(norm, BatchNorm) or norm.global_stats:
        return []
    second = follower(net.nodes[index])
    scale = net.nodes[second].layer if second is not None else None
    if second is None or not isinstance(scale, Scale) or scale.operand != "w0" or scale.bias is None:
        return []
    if [axis for axis in range(len(norm.tops[0].shape)) if axis not in scale.summed] != [1]:
        return []
    return [[index, second]]


def _summed(net: Net, chain: list[int], follower: Follower) -> list[list[int]]:
    """The chain, the plain sum of its top and of another blob that was there before, and with the sum's ReLU too."""
    (top,) = net.nodes[chain[-1]].tops
    total = follower(net.nodes[chain[-1]])
    sum_of = net.nodes[total] if total is not None else None
    if total is None or sum_of is None or not isinstance(sum_of.layer, Eltwise):
        return []
    if sum_of.layer.operation != "SUM" or sum_of.layer.coeffs != (1.0, 1.0):
        return []
    (other,) = [blob for blob in sum_of.bottoms if blob != top]
    if any(other in node.tops for node in net.nodes[chain[-1] + 1 : total]):  # its own maker takes the sum along
        return []
    return [*_with_relu(net, [*chain, total], follower), [*chain, total]]


def _joined(nodes: list[Node]) -> Node:
    """One node for a chain."""
    layers: list[Any] = [node.layer for node in nodes]
    relu: Any = layers.pop() if isinstance(layers[-1], ReLU) else None
    at = next((i for i, layer in enumerate(layers) if i and isinstance(layer, Eltwise)), len(layers))
    bottoms, propagate = nodes[0].bottoms, nodes[0].propagate
    layer: Layer
    if at == len(layers) == 1:
        layer = Rectified(layers[0], relu)
    elif at == len(layers):
        layer = BatchNormScale(layers[0], layers[1], relu)
    else:
        inner = BatchNormScale(layers[0], layers[1], None) if at == 2 else layers[0]
        added = 1 - nodes[at].bottoms.index(nodes[at - 1].tops[0])
        layer = Summed(inner, layers[at], added, relu)
        bottoms, propagate = (*bottoms, nodes[at].bottoms[added]), (*propagate, nodes[at].propagate[added])
    params = tuple(name for node in nodes for name in node.params)
    return Node(layer, nodes[0].line, bottoms, nodes[-1].tops, params, propagate, nodes[-1].loss_weights)
