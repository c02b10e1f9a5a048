"""Statistics for a BatchNorm from the epilogue of the convolution that makes its input.

    conv1.forward   y, moments      mean and M2 of each channel in units of rows, from the tiles in registers
    bn1.forward     reads moments   merges them; y is read once, to be normalized

The moments live from one op to the other, y / 64 bytes.  The bits are those of the BatchNorm that reads y twice, since
a device adds up each unit in one order (cuda/moments.cuh).  In slices of the batch, whose items are not whole units,
the two ops are as they are apart (optional_fusions.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from layermem.graph.fusion import BatchNormScale, BatchNormSum, Epilogue
from layermem.graph.nodes import OpNode
from layermem.graph.op_builder import Device
from layermem.layers import Step
from layermem.layers.convolution import Convolution
from layermem.layers.normalization import BatchNorm
from layermem.ops import CONV_MOMENTS, OF_SECOND, Conv

MOMENTS = "moments"  # the role in both ops; in that of two BatchNorms the second has its own
ROLES = (MOMENTS, OF_SECOND[MOMENTS])


def moments_of(nodes: Sequence[OpNode], device: Device) -> dict[int, dict[str, int]]:
    """The nodes whose forward leaves moments or reads them: by role, the convolution that leaves them."""
    if CONV_MOMENTS not in device.fusions:
        return {}
    makers = {node.tops[0]: index for index, node in enumerate(nodes) if _leaves_moments(node)}
    found: dict[int, dict[str, int]] = {}
    for index, node in enumerate(nodes):
        for role, blob in zip(ROLES[: norms_of(node)], node.bottoms):
            if blob in makers:
                maker = makers.pop(blob)  # for one BatchNorm
                found[maker] = {MOMENTS: maker}
                found.setdefault(index, {})[role] = maker
    return found


def _leaves_moments(node: OpNode) -> bool:
    record = node.emitter.record
    return isinstance(node.emitter, Convolution) and isinstance(record, Conv) and record.pairs == 1


def norms_of(node: OpNode) -> int:
    """How many BatchNorms of the statistics of their batch the node is, with what follows in its epilogue."""
    if isinstance(node.emitter, BatchNormSum):
        return 2
    base = node.emitter.base if isinstance(node.emitter, Epilogue) else node.emitter
    return int(isinstance(base, BatchNormScale) or (isinstance(base, BatchNorm) and not base.norm.global_stats))


def with_moments(step: Step, node: int, makers: Mapping[str, int]) -> Step:
    """A forward step of node number `node`, which leaves moments or reads those of the convolutions `makers`."""
    if makers.get(MOMENTS) == node:
        return replace(step, writes=(*step.writes, MOMENTS))
    return replace(step, reads=(*step.reads, *makers))
