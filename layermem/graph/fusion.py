"""Fusion: chains of layers become one op if no other op reads the blobs between them.

    BatchNorm + Scale (+ ReLU)                                                  one BatchNormScale
    Convolution, InnerProduct or an Eltwise sum + ReLU                          relu in the epilogue
    BatchNorm + Scale, Convolution or InnerProduct + the sum with another blob (+ ReLU)     residual, relu

Fusion rewrites op records: the first layer of a chain emits the steps, and later layers become fields of their records
(relu, residual).  Backward of BatchNorm + Scale + ReLU reads x and the statistics; the sign that ReLU needs is
recomputed from them, so neither the normalized blob nor the scaled one is stored.  The other forms stash one bit per
element, or read y if another op's backward keeps it.

The choice depends on the net and the device, not on a budget or plan, so results do not depend on memory management.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from layermem import ops
from layermem.graph.nodes import Emitter, OpNode
from layermem.layers import Layer, Overlay, Step
from layermem.layers.activation import ReLU, bits, elementwise_overlays
from layermem.layers.base import DX_OVER_DY, DX_OVER_X, Y_OVER_X
from layermem.layers.convolution import Convolution
from layermem.layers.eltwise import Eltwise
from layermem.layers.inner_product import InnerProduct
from layermem.layers.normalization import BatchNorm
from layermem.layers.scale import Scale
from layermem.ops import OpRecord
from layermem.proto.names import FreeNames

# ---- rewriting -------------------------------------------------------------------------------------------------------


class BatchNormScaleEmitter:
    """Emits the ops of a training BatchNorm, of the Scale with a bias that reads it, and of a ReLU after that, if any.

    Parameters w0 .. w4: the three averages of the BatchNorm, then factor and bias of the Scale.
    scale   None for a BatchNorm with its own scale and bias
    """

    type = "BatchNormScale"
    recompute_kind = "exact"

    def __init__(self, norm: BatchNorm, scale: Scale | None, relu: ReLU | None):
        chain: list[Layer] = [layer for layer in (norm, scale, relu) if layer is not None]
        self.name = "+".join(layer.name for layer in chain)
        self.bottoms, self.tops = norm.bottoms, chain[-1].tops
        self.bottom_names, self.top_names = norm.bottom_names, chain[-1].top_names
        self.params = norm.params if scale is None else (*norm.params, *scale.params)
        self.stash = dict(norm.stash)
        self.flops = sum(layer.forward().flops for layer in chain)
        if scale is None:
            assert isinstance(norm.record, ops.BatchNormScale)
            scaled = norm.record
        else:
            assert isinstance(norm.record, ops.BatchNorm)
            scaled = ops.BatchNormScale(norm.record, scale.record)
        self.record: OpRecord = replace(scaled, relu=relu is not None)

    def forward(self) -> Step:
        writes, averages = ("y0", *self.stash), ("w0", "w1", "w2")
        return Step("forward", ("x0", "w3", "w4"), writes, averages, (Y_OVER_X,), self.flops)

    def recompute(self) -> Step:
        overlays, flops = (Y_OVER_X,), 4 * self.bottoms[0].count
        return Step("recompute", ("x0", *self.stash, "w3", "w4"), ("y0",), overlays=overlays, flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(role for role in ("dx0", "dw3", "dw4") if role in wants)
        overlays = (DX_OVER_DY, DX_OVER_X) if "dx0" in wants else ()
        reads = ("x0", *self.stash, "w3", "w4", "dy0")
        return (Step("backward", reads, writes, overlays=overlays, flops=14 * self.bottoms[0].count),)


class EpilogueEmitter:
    """Emits the ops of `base` with an epilogue: the sum with another blob, a ReLU, or both.

    residual   tensor of the blob that is added, as x1; its gradient is the gradient of the sum
    mask       one bit per element of y, unless another op's backward keeps y
    """

    def __init__(self, base: Emitter, total: Eltwise | None, other: int, relu: ReLU | None):
        followers: list[Layer] = [layer for layer in (total, relu) if layer is not None]
        self.base, self.relu, self.residual = base, relu is not None, total is not None
        self.name = "+".join((base.name, *(layer.name for layer in followers)))
        self.type = base.type + "Sum" * self.residual + "ReLU" * self.relu
        self.recompute_kind = base.recompute_kind
        self.bottoms, self.tops, self.top_names = base.bottoms, base.tops, followers[-1].top_names
        self.bottom_names, self.params = base.bottom_names, base.params
        if total is not None:
            self.bottoms += (total.bottoms[other],)
            self.bottom_names += (total.bottom_names[other],)
        self.stash = {**base.stash, **({"mask": bits(self.tops[0])} if self.relu else {})}
        self.record: OpRecord = with_epilogue(base.record, residual=self.residual, relu=self.relu)

    def forward(self) -> Step:
        return self._rewrite(self.base.forward())

    def recompute(self) -> Step | None:
        step = self.base.recompute()
        return None if step is None else self._rewrite(step)

    def _rewrite(self, step: Step) -> Step:
        """The forward step with the epilogue added."""
        return replace(
            step,
            reads=(*step.reads, "x1") if self.residual else step.reads,
            writes=(*step.writes, "mask") if self.relu else step.writes,
            overlays=(*step.overlays, Overlay("y0", "x1", "forward")) if self.residual else step.overlays,
            flops=step.flops + (self.residual + self.relu) * self.tops[0].count,
            record=self.record,
        )

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        inner = self.base.backward([role for role in wants if not (self.residual and role == "dx1")], saved)
        steps = [replace(step, record=self.base.record) for step in inner]
        if self.residual and "dx1" in wants:  # last, because dx1 may overlay dy
            overlays, record = elementwise_overlays("dx1", "dy0"), ops.ResidualGrad(self.tops[0])
            steps.append(Step("residual_backward", ("dy0",), ("dx1",), overlays=overlays, record=record))
        if self.relu and steps and isinstance(self.base, Eltwise):  # one op masks dy and passes it on
            sign, count = self._sign(saved), self.tops[0].count
            data = ("y0",) if sign == "y0" else ()
            overlays = tuple(o for role in steps[0].writes for o in elementwise_overlays(role, "dy0", *data))
            return (Step("backward", (sign, "dy0"), steps[0].writes, overlays=overlays, flops=steps[0].flops + count),)
        if not self.relu or not steps:
            return steps
        mask, count = ops.ReluMask(self.tops[0]), self.tops[0].count
        return [Step("relu_backward", (self._sign(saved),), (), ("dy0",), flops=count, record=mask), *steps]

    def _sign(self, saved: Collection[str]) -> str:
        """The role that holds the sign of the ReLU's output."""
        return "y0" if "y0" in saved else "mask"


def with_epilogue(record: OpRecord, *, residual: bool, relu: bool) -> OpRecord:
    """`record` with the epilogue as fields."""
    if isinstance(record, (ops.Conv, ops.InnerProduct, ops.BatchNormScale)):
        return replace(record, residual=residual, relu=relu)
    assert isinstance(record, ops.Eltwise) and not residual
    return replace(record, relu=relu)


# ---- matching --------------------------------------------------------------------------------------------------------

Follower: TypeAlias = Callable[[OpNode], "int | None"]


def fuse(nodes: Sequence[OpNode], fusions: Collection[str], outputs: Collection[str] = ()) -> list[OpNode]:
    """`nodes` with chains replaced by the fused ops that `fusions` names; blobs in `outputs` stay."""
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for blob in node.bottoms:
            readers.setdefault(blob, []).append(index)

    def follower(node: OpNode) -> int | None:
        """The index of the only reader of the only top of `node`; None if anything else depends on that blob."""
        blob = node.tops[0]
        reading = readers.get(blob, [])
        if len(reading) != 1 or blob in outputs or any(node.loss_weights) or not all(nodes[reading[0]].propagate):
            return None
        return reading[0]

    names = FreeNames(layer.name for node in nodes for layer in node.layers)
    replaced: dict[int, OpNode | None] = {}
    for index in range(len(nodes)):
        for chain in _chains(nodes, index, follower):
            fused = _fused([nodes[i] for i in chain])
            if fused.emitter.record.fusion in fusions and not replaced.keys() & set(chain):
                assert isinstance(fused.emitter, (BatchNormScaleEmitter, EpilogueEmitter))
                fused.emitter.name = names.take(fused.emitter.name)  # a layer may be called "conv1+relu1"
                replaced |= dict.fromkeys(chain)
                replaced[chain[-1]] = fused
                break
    return [node for node in (replaced.get(i, node) for i, node in enumerate(nodes)) if node is not None]


def _chains(nodes: Sequence[OpNode], index: int, follower: Follower) -> list[list[int]]:
    """Indices of nodes that may become one op, starting with `index`; the longest chain first."""
    layer = nodes[index].emitter
    chains: list[list[int]] = []
    if isinstance(layer, BatchNorm):
        chains = _batch_norm_scale(nodes, index, follower)
    elif isinstance(layer, (Convolution, InnerProduct)) and len(layer.tops) == 1:
        chains = [[index]]
    elif isinstance(layer, Eltwise) and layer.record.operation == "SUM":
        return _with_relu(nodes, [index], follower)
    for chain in chains:
        chains = [*_with_residual(nodes, chain, follower), *_with_relu(nodes, chain, follower), *chains]
    return [chain for chain in chains if len(chain) > 1]


def _with_relu(nodes: Sequence[OpNode], chain: list[int], follower: Follower) -> list[list[int]]:
    """The chain extended by a ReLU without a slope that is its only reader; empty if there is none."""
    last = follower(nodes[chain[-1]])
    relu = nodes[last].emitter if last is not None else None
    return [[*chain, last]] if last is not None and isinstance(relu, ReLU) and not relu.negative_slope else []


def _batch_norm_scale(nodes: Sequence[OpNode], index: int, follower: Follower) -> list[list[int]]:
    """A BatchNorm and its Scale, if there is such a chain at `index`; or a BatchNorm with its own scale and bias."""
    norm = nodes[index].emitter
    if not isinstance(norm, BatchNorm) or norm.norm.global_stats:
        return []
    if norm.affine:
        return [[index]]
    second = follower(nodes[index])
    scale = nodes[second].emitter if second is not None else None
    if second is None or not isinstance(scale, Scale) or scale.record.operand != "w0" or scale.record.bias is None:
        return []
    if [axis for axis in range(len(norm.tops[0].shape)) if axis not in scale.record.summed] != [1]:
        return []
    return [[index, second]]


def _with_residual(nodes: Sequence[OpNode], chain: list[int], follower: Follower) -> list[list[int]]:
    """The chain extended by a plain sum of its top and another, earlier blob, with and without the ReLU of the sum."""
    total = follower(nodes[chain[-1]])
    layer = nodes[total].emitter if total is not None else None
    if total is None or not isinstance(layer, Eltwise):
        return []
    if layer.record.operation != "SUM" or layer.record.coeffs != (1.0, 1.0):
        return []
    (other,) = [blob for blob in nodes[total].bottoms if blob not in nodes[chain[-1]].tops]
    if any(other in node.tops for node in nodes[chain[-1] + 1 : total]):  # the sum is fused with its own producer
        return []
    return [*_with_relu(nodes, [*chain, total], follower), [*chain, total]]


def _fused(chain: list[OpNode]) -> OpNode:
    """One node for layers that read each other in order."""
    layers = [layer for node in chain for layer in node.layers]
    relu = layers[-1] if isinstance(layers[-1], ReLU) else None
    at = next((i for i, layer in enumerate(layers) if i and isinstance(layer, Eltwise)), None)
    bottoms, propagate = chain[0].bottoms, chain[0].propagate
    first, emitter = layers[0], None
    if isinstance(first, BatchNorm):
        scale = next((layer for layer in layers[1:2] if isinstance(layer, Scale)), None)
        emitter = BatchNormScaleEmitter(first, scale, relu if at is None else None)
    if at is not None:
        total = layers[at]
        assert isinstance(total, Eltwise)
        other = 1 - chain[at].bottoms.index(chain[at - 1].tops[0])
        bottoms, propagate = (*bottoms, chain[at].bottoms[other]), (*propagate, chain[at].propagate[other])
        node: Emitter = EpilogueEmitter(emitter or first, total, other, relu)
    else:
        node = emitter or EpilogueEmitter(first, None, 0, relu)
    params = tuple(name for each in chain for name in each.params)
    return OpNode(node, tuple(layers), bottoms, chain[-1].tops, params, propagate, chain[-1].loss_weights)
