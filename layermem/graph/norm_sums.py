"""Sums for backward of a BatchNorm from the epilogue of the convolution whose data gradient is the last part of its dy.

    bn1+relu1.forward    y, which conv2 reads
    conv2.dgrad          dy, norm_sums      sums of dy and of dy (x - mean) inv_std, of each channel in units of rows
    bn1.backward         reads norm_sums    merges them; dy and x are read once, for dx

The sums live from one op to the other, y / 64 bytes; x is there one op earlier.  The bits are those of the BatchNorm
that reads dy and x twice, since a device adds up each unit in one order (cuda/gradient_sums.cuh).  A ReLU of the
BatchNorm's own is recomputed for them; one behind a residual sum is in the dgrad too (masked_dgrad.py).  A dgrad with a
stride is one problem for each phase, whose rows are not those of a unit: the two ops are as they are apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from layermem.graph.conv_moments import is_norm
from layermem.graph.fusion import Epilogue
from layermem.graph.masked_dgrad import is_dgrad_of, last_writers
from layermem.graph.needs import Needs
from layermem.graph.nodes import OpNode
from layermem.graph.op_builder import Device
from layermem.layers import Step
from layermem.ops import DGRAD_SUMS, NORM_OPERANDS, BatchNormScale, Conv, OpRecord, Tensor

NORM_SUMS = "norm_sums"  # the role in both ops


def norm_sums_of(nodes: Sequence[OpNode], needs: Needs, masked: Mapping[int, int], device: Device) -> dict[int, int]:
    """The node of each dgrad that leaves sums, and the node of the BatchNorm that reads them.  `masked` has the dgrads
    that end with the backward of a ReLU."""
    if DGRAD_SUMS not in device.fusions:
        return {}
    last = last_writers(nodes, needs)
    found = {}
    for index, node in enumerate(nodes):
        writer = last.get(node.tops[0]) if needs.wants[index] and is_norm(node) else None
        if writer is None or not _leaves_sums(nodes[writer], node.tops[0]):
            continue
        if not _has_relu_apart(node) or masked.get(writer) == index:
            found[writer] = index
    return found


def _leaves_sums(node: OpNode, blob: str) -> bool:
    record = base_record(node)
    return is_dgrad_of(node, blob) and isinstance(record, Conv) and record.problem.stride == (1, 1)


def _has_relu_apart(node: OpNode) -> bool:
    """Whether backward of a ReLU is an op between the dgrad and that of the BatchNorm."""
    return isinstance(node.emitter, Epilogue) and node.emitter.relu


def base_record(node: OpNode) -> OpRecord:
    """That of the layer before what is in its epilogue."""
    return (node.emitter.base if isinstance(node.emitter, Epilogue) else node.emitter).record


def operands_of(node: OpNode) -> dict[str, str]:
    """The buffers of what the sums for the BatchNorm of `node` are computed from, by role in the dgrad."""
    name = node.emitter.name
    buffers = [node.bottoms[0], f"{name}.mean", f"{name}.inv_std"]
    record = base_record(node)
    if isinstance(record, BatchNormScale) and record.relu:
        buffers += node.params[3:5]
    return dict(zip(NORM_OPERANDS, buffers))


def sums_tensor(node: OpNode) -> Tensor:
    """What the convolution `node` leaves."""
    record = base_record(node)
    assert isinstance(record, Conv)
    return record.problem.norm_sums


def leaving_sums(step: Step) -> Step:
    """A step of the convolution.  It reads x instead of the BatchNorm, whose op counts it once, with the sums or
    without."""
    if step.step != "dgrad":
        return step
    reads, writes = (*step.reads, *NORM_OPERANDS), (*step.writes, NORM_SUMS)
    return replace(step, reads=reads, writes=writes, uncounted=NORM_OPERANDS)


def reading_sums(step: Step) -> Step:
    """A step of the BatchNorm's node."""
    return replace(step, reads=(*step.reads, NORM_SUMS)) if step.step == "backward" else step
