"""The data gradients of two convolutions that read one blob, as one op.

    conv_b.wgrad                               one op, when both dy are there:
    conv_b.dgrad    dx = ..
    conv_a.wgrad
    conv_a.dgrad    dx += ..                   conv_a.dgrad    dx = the first sum + the second one

dx is not written, read and written again.  Backward runs in reverse: conv_b is the later one in the net, and its dy
lives until conv_a's is there, instead of its part of dx.  Where the last two ops that add to dx are such dgrads, they
become one, and so do the two before them, if the device runs such an op (ops.MERGED_DGRADS).  The bits are those of the
two ops, which round the first sum where it is stored.  Such a dgrad leaves no sums for a BatchNorm (norm_sums.py).

The op is of the node that makes the blob, as the first one of its backward: in a plan by lower sets neither convolution
need come before the other one, but both come behind that node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from layermem.graph.fusion import Epilogue
from layermem.graph.masked_dgrad import is_dgrad_of
from layermem.graph.needs import Needs
from layermem.graph.nodes import OpNode
from layermem.graph.norm_sums import base_record
from layermem.graph.op_builder import Device
from layermem.layers import Step
from layermem.ops import FP32, MERGED_DGRADS, MERGED_OPERANDS, NARROW, Conv, MergedDgrads


class Merged(NamedTuple):
    """The nodes of two dgrads, in the order of their sums."""

    first: int
    last: int


def merged_dgrads(nodes: Sequence[OpNode], needs: Needs, device: Device) -> dict[int, list[Merged]]:
    """Those that are one op, in their order, by the node that makes the blob."""
    if MERGED_DGRADS not in device.fusions:
        return {}
    writers = _writers(nodes, needs)
    found = {}
    for index, node in enumerate(nodes):
        if needs.wants[index] and len(node.tops) == 1:
            found[index] = list(_pairs(nodes, node.tops[0], writers.get(node.tops[0], []), device))
    return {index: list(reversed(pairs)) for index, pairs in found.items() if pairs}


def _writers(nodes: Sequence[OpNode], needs: Needs) -> dict[str, list[int]]:
    """The nodes that add to the gradient of each blob, the last one to run first."""
    found: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for role in needs.wants[index]:
            if role.startswith("dx"):
                found.setdefault(node.bottoms[int(role[2:])], []).append(index)
    return found


def _pairs(nodes: Sequence[OpNode], blob: str, writers: Sequence[int], device: Device) -> Iterator[Merged]:
    """The last two, the two before them and so on, as far as they are mergeable."""
    for last, first in zip(writers[::2], writers[1::2]):
        if not _are_mergeable(nodes[first], nodes[last], blob, device):
            return
        yield Merged(first, last)


def _are_mergeable(first: OpNode, last: OpNode, blob: str, device: Device) -> bool:
    """Not where a gradient that is passed on takes the place of dy."""
    for node in (first, last):
        if not is_dgrad_of(node, blob) or (isinstance(node.emitter, Epilogue) and node.emitter.residual):
            return False
    record = _record(first, last)
    return record.is_one_sum and _is_taken(record, device)


def _record(first: OpNode, last: OpNode) -> MergedDgrads:
    own, other = base_record(last), base_record(first)
    assert isinstance(own, Conv) and isinstance(other, Conv)
    return MergedDgrads(own.problem, other.problem)


def _is_taken(record: MergedDgrads, device: Device) -> bool:
    """Whether the kernel takes blobs as `device` stores them: the first sum is rounded then as it is apart."""
    if device.storage == FP32:
        return True
    roles = dict.fromkeys(("dx0", "dy0", MERGED_OPERANDS[0]), NARROW[device.storage])
    return device.takes(record, "dgrad", roles, ()) == roles.keys()


def without_dgrad(steps: Sequence[Step]) -> list[Step]:
    """Backward of a node whose dgrad is one op with that of another one."""
    return [step for step in steps if step.step != "dgrad"]


def merged_step(first: OpNode, last: OpNode) -> Step:
    flops = sum(
        step.flops for node in (first, last) for step in node.emitter.backward(("dx0",)) if step.step == "dgrad"
    )
    reads = ("dy0", "w0", *MERGED_OPERANDS)
    return Step("dgrad", reads, ("dx0",), flops=flops, record=_record(first, last))


def merged_roles(first: OpNode, last: OpNode) -> Mapping[str, str]:
    """The buffers that it reads, by role."""
    dy, w = MERGED_OPERANDS
    gradients = {"dy0": f"{last.tops[0]}.diff", dy: f"{first.tops[0]}.diff"}
    return {**gradients, "w0": last.params[0], w: first.params[0]}
