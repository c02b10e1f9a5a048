"""The backward of a ReLU in that of the pooling, or the LRN, which makes the gradient of its output.

    conv1+relu1.forward         y                             only pool1 has a gradient for it:
    pool1.backward              dy                            dy, cleared where y <= 0
    conv1+relu1.relu_backward   dy cleared where y <= 0

    MAX pooling that alone has a gradient for y    its forward names no element of a window without a positive one, so
                                                   that no gradient goes there: neither y nor a mask is kept for it
    LRN                                            reads y anyway, and clears the sum with what is there
    other pooling                                  reads the mask, unless y is kept; it clears the sum as well

The last op to write the gradient clears it, as a dgrad does (masked_dgrad.py), and the bits are those of the two ops.
No step takes a byte more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from layermem.graph.masked_dgrad import MASK, has_relu_backward, has_whole_bytes, last_writers
from layermem.graph.needs import Needs
from layermem.graph.nodes import OpNode
from layermem.graph.op_builder import Device
from layermem.graph.ops import BACKWARD
from layermem.layers import Step
from layermem.ops import LRN, MASKED_POOL, OpRecord, Pool

RELU_MASK = "relu_mask"  # the role of the mask in backward of a pooling


@dataclass(frozen=True)
class BottomRelu:
    """The node of a ReLU, and how another one does its backward.

    record   of that node's steps
    mask     whether its backward reads the mask of the ReLU
    """

    relu: int
    record: OpRecord
    mask: bool = False


def bottom_relus(
    nodes: Sequence[OpNode], needs: Needs, device: Device, fed: Collection[str] = ()
) -> dict[int, BottomRelu]:
    """By the node that does the backward of a ReLU.  `fed`: blobs whose gradient also comes from outside."""
    last, found = last_writers(nodes, needs), {}
    for index, node in enumerate(nodes):
        blob = node.tops[0] if node.tops else ""
        writer = last.get(blob) if needs.wants[index] and has_relu_backward(node) else None
        if writer is None or nodes[writer].bottoms.count(blob) > 1:
            continue
        is_alone = blob not in fed and _readers_with_gradient(nodes, needs, blob) == 1
        has_mask = has_whole_bytes(node) and "y0" not in needs.saved[index]
        form = _form(nodes[writer], index, device.fusions, is_alone=is_alone, has_mask=has_mask)
        if form is not None:
            found[writer] = form
    return found


def _readers_with_gradient(nodes: Sequence[OpNode], needs: Needs, blob: str) -> int:
    return sum(
        role.startswith("dx") and node.bottoms[int(role[2:])] == blob
        for node, wants in zip(nodes, needs.wants)
        for role in wants
    )


def _form(node: OpNode, relu: int, fusions: Collection[str], *, is_alone: bool, has_mask: bool) -> BottomRelu | None:
    """How `node` does the backward of the ReLU of node `relu`; None where it does not."""
    record = node.emitter.record
    if isinstance(record, LRN):
        cleared = replace(record, bottom_relu=True)
        return BottomRelu(relu, cleared) if cleared.fusion in fusions else None
    if not isinstance(record, Pool):
        return None
    if record.method == "MAX" and is_alone and len(node.tops) == 1:
        named = replace(record, bottom_relu=True)
        if named.fusion in fusions and named.argmax == record.argmax:
            return BottomRelu(relu, named)
    return BottomRelu(relu, record, mask=True) if has_mask and MASKED_POOL in fusions else None


def without_masks(needs: Needs, found: Iterable[BottomRelu]) -> Needs:
    """`needs` of nodes whose ReLU has no mask where no op reads it."""
    stash = list(needs.stash)
    for each in found:
        if not each.mask:
            stash[each.relu] = tuple(name for name in stash[each.relu] if name != MASK)
    return replace(needs, stash=tuple(stash))


def with_bottom_relu(step: Step, form: BottomRelu) -> Step:
    """A step of the node that does the backward of a ReLU."""
    if form.mask:
        return replace(step, reads=(*step.reads, RELU_MASK)) if step.step == BACKWARD else step
    return replace(step, record=form.record)


def clears_gradient(record: OpRecord, step: str, roles: Mapping[str, str]) -> bool:
    """Whether an op does the backward of a ReLU so."""
    return step == BACKWARD and (RELU_MASK in roles or getattr(record, "bottom_relu", False))
