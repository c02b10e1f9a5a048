"""Statistics for a BatchNorm from the epilogue of the convolution that makes its input.

    conv1.forward   y, moments      mean and M2 of each channel in units of rows, from the tiles in registers
    bn1.forward     reads moments   merges them; y is read once, to be normalized

The moments live from one op to the other, y / 64 bytes.  The bits are those of the BatchNorm that reads y twice, since
a device adds up each unit in one order (cuda/moments.cuh).  In slices of the batch, whose items are not whole units,
the two ops are as they are apart (optional_fusions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layermem.graph.fusion import BatchNormScale, Epilogue
from layermem.graph.nodes import OpNode
from layermem.graph.op_builder import Device
from layermem.layers import Step
from layermem.layers.convolution import Convolution
from layermem.layers.normalization import BatchNorm
from layermem.ops import CONV_MOMENTS, Conv

MOMENTS = "moments"  # the role in both ops


def moments_of(nodes: Sequence[OpNode], device: Device) -> dict[int, int]:
    """The nodes whose forward leaves moments or reads them: the convolution that leaves them."""
    if CONV_MOMENTS not in device.fusions:
        return {}
    makers = {node.tops[0]: index for index, node in enumerate(nodes) if _leaves_moments(node)}
    found: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if is_norm(node) and node.bottoms[0] in makers:
            maker = makers.pop(node.bottoms[0])  # for one BatchNorm
            found[maker] = found[index] = maker
    return found


def _leaves_moments(node: OpNode) -> bool:
    record = node.emitter.record
    return isinstance(node.emitter, Convolution) and isinstance(record, Conv) and record.pairs == 1


def is_norm(node: OpNode) -> bool:
    """Whether the node is a BatchNorm of the statistics of its batch, with what follows in its epilogue."""
    base = node.emitter.base if isinstance(node.emitter, Epilogue) else node.emitter
    return isinstance(base, BatchNormScale) or (isinstance(base, BatchNorm) and not base.norm.global_stats)


def with_moments(step: Step, *, leaves: bool) -> Step:
    """A forward step that leaves moments or reads them."""
    if leaves:
        return replace(step, writes=(*step.writes, MOMENTS))
    return replace(step, reads=(*step.reads, MOMENTS))
