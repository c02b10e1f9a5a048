"""The backward of a ReLU in the epilogue of the convolution whose data gradient is its last operand.

    conv1+relu1.forward   y, mask
    conv2.dgrad           dy += ..                       one op writes dy last, conv2's:
    conv1.relu_backward   dy cleared where y <= 0        dy = (dy + ..) cleared where the bit of mask is not set

Backward runs in reverse, so the first node that reads y is the last one to add to its gradient.  Where that is a
convolution, and the device runs such a dgrad (ops.MASKED_DGRAD), no op passes over dy alone; and y is not kept for its
sign.  The bits are those of the two ops.  Channels are multiples of eight: each item has bytes of its own in the mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from layermem.graph.fusion import Epilogue
from layermem.graph.needs import Needs
from layermem.graph.nodes import OpNode
from layermem.graph.op_builder import Device
from layermem.layers import Step
from layermem.layers.convolution import Convolution
from layermem.layers.eltwise import Eltwise
from layermem.ops import MASKED_DGRAD, Conv

MASK, RELU_BACKWARD = "mask", "relu_backward"
BOTTOM_MASK = "bottom_mask"  # the role of the mask in the dgrad
MASK_CHANNELS = 8  # of a byte of a mask


def masked_dgrads(nodes: Sequence[OpNode], needs: Needs, device: Device) -> dict[int, int]:
    """The node of each dgrad that ends with the backward of a ReLU, and the node of that ReLU."""
    if MASKED_DGRAD not in device.fusions:
        return {}
    last, found = last_writers(nodes, needs), {}
    for index, node in enumerate(nodes):
        is_masked = has_relu_backward(node) and has_whole_bytes(node)
        writer = last.get(node.tops[0]) if needs.wants[index] and is_masked else None
        if writer is not None and is_dgrad_of(nodes[writer], node.tops[0]):
            found[writer] = index
    return found


def has_relu_backward(node: OpNode) -> bool:
    """Whether backward of `node` begins with that of a ReLU, as an op of its own."""
    emitter = node.emitter
    return isinstance(emitter, Epilogue) and emitter.relu and not isinstance(emitter.base, Eltwise)


def has_whole_bytes(node: OpNode) -> bool:
    """Whether a mask of what `node` writes has whole bytes of each item."""
    shape = node.emitter.tops[0].shape
    return len(shape) == 4 and shape[1] % MASK_CHANNELS == 0


def last_writers(nodes: Sequence[OpNode], needs: Needs) -> dict[str, int]:
    """The last node to add to the gradient of each blob, but of those whose own weight in the loss is added later."""
    weighed = {blob for node in nodes for blob, weight in zip(node.tops, node.loss_weights) if weight}
    return {
        blob: index
        for index in range(len(nodes) - 1, -1, -1)
        for blob in (nodes[index].bottoms[int(role[2:])] for role in needs.wants[index] if role.startswith("dx"))
        if blob not in weighed
    }


def is_dgrad_of(node: OpNode, blob: str) -> bool:
    """Whether `node` is a convolution that reads `blob`, alone and once."""
    base = node.emitter.base if isinstance(node.emitter, Epilogue) else node.emitter
    is_one = isinstance(base, Convolution) and isinstance(base.record, Conv) and base.record.pairs == 1
    return is_one and node.bottoms[0] == blob and node.bottoms.count(blob) == 1


def with_masks(needs: Needs, relus: Iterable[int], nodes: Sequence[OpNode]) -> Needs:
    """`needs` of nodes whose ReLU reads a mask also where y is there."""
    saved, stash = list(needs.saved), list(needs.stash)
    for index in relus:
        saved[index] -= {"y0"}
        stash[index] = tuple(name for name in nodes[index].emitter.stash if name in stash[index] or name == MASK)
    return replace(needs, saved=tuple(saved), stash=tuple(stash))


def without_relu(steps: Iterable[Step]) -> list[Step]:
    """Backward of a ReLU's node whose gradient comes masked."""
    return [step for step in steps if step.step != RELU_BACKWARD]


def with_relu(steps: Iterable[Step]) -> Iterator[Step]:
    """Backward of a convolution whose dgrad masks what it writes."""
    for step in steps:
        is_masked = step.step == "dgrad"
        yield replace(step, reads=(*step.reads, BOTTOM_MASK)) if is_masked else step


def masks_gradient(step: str, roles: Mapping[str, str]) -> bool:
    """Whether an op does the backward of a ReLU in an epilogue."""
    return step == RELU_BACKWARD or BOTTOM_MASK in roles
