"""Fusions that take bytes of their own, which a step may do without: its results are the same bits.

    Conv.dgrad+relu         masks of ReLUs, from forward to backward, beside outputs that are kept anyway
    Conv.forward+moments    partial sums for a BatchNorm, from its convolution to it
    Conv.dgrad+sums         partial sums for backward of a BatchNorm, from the dgrad that makes its gradient

They save passes over activations.  A step without some of them is *apart*: it needs fewer bytes, or more, where a mask
frees an output earlier.  There is one without those that need an input earlier, and one without any; which step runs is
decided with the plan (layermem/fusions.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import TypeVar

from layermem.graph.conv_moments import MOMENTS
from layermem.graph.masked_dgrad import BOTTOM_MASK
from layermem.graph.norm_sums import NORM_SUMS
from layermem.graph.op_builder import Device
from layermem.graph.ops import Buffer, Graph, Op
from layermem.ops import CONV_MOMENTS, DGRAD_SUMS, MASKED_DGRAD, NORM_OPERANDS

ROLES = {  # of an op that is fused so
    BOTTOM_MASK: MASKED_DGRAD,
    MOMENTS: CONV_MOMENTS,
    NORM_SUMS: DGRAD_SUMS,
}
OPTIONAL = frozenset(ROLES.values())
NEED_INPUTS = frozenset({DGRAD_SUMS})  # before the ops that read them anyway
PARTIAL_SUMS = (MOMENTS, NORM_SUMS)  # roles

D = TypeVar("D", bound=Device)


def fused_in(graph: Graph) -> tuple[str, ...]:
    """The optional fusions that `graph` has, by name."""
    return tuple(sorted({ROLES[role] for op in graph.ops for role in op.roles if role in ROLES}))


def steps_apart(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """What steps do without where all that a step may have is `names`: of one step more than of the one before it."""
    some = tuple(name for name in names if name in NEED_INPUTS)
    return tuple(each for each in dict.fromkeys((some, names)) if each)


def without_fusions(device: D, names: Collection[str] = OPTIONAL) -> D:
    """`device`, for graphs without these fusions."""
    apart = copy(device)
    apart.fusions = device.fusions.difference(names)
    return apart


def without_partial_sums(graph: Graph, first: int, last: int, device: Device) -> Graph:
    """`graph` without the partial sums that an op of the nodes first .. last makes or reads."""
    return without_sums_of(graph, [op for op in graph.ops if first <= op.node <= last], device)


def partial_sums_of(op: Op) -> frozenset[str]:
    """Buffers of those that `op` makes or reads."""
    return frozenset(op.roles[role] for role in PARTIAL_SUMS if role in op.roles)


def without_sums_of(graph: Graph, ops: Iterable[Op], device: Device) -> Graph:
    """`graph` without the partial sums that one of these ops of it makes or reads."""
    dropped = {buffer for op in ops for buffer in partial_sums_of(op)}
    if not dropped:
        return graph
    buffers = {name: buffer for name, buffer in graph.buffers.items() if name not in dropped}
    return replace(graph, buffers=buffers, ops=tuple(_apart(op, buffers, device) for op in graph.ops))


def _apart(op: Op, buffers: Mapping[str, Buffer], device: Device) -> Op:
    """`op` without its partial sums that are not among `buffers`, and without what it reads for them."""
    gone = {role for role in PARTIAL_SUMS if role in op.roles and op.roles[role] not in buffers}
    if not gone:
        return op
    if NORM_SUMS in gone:
        gone |= set(NORM_OPERANDS)
    roles = {role: buffer for role, buffer in op.roles.items() if role not in gone}
    left = set(roles.values())
    reads, writes = (tuple(b for b in names if b in left) for names in (op.reads, op.writes))
    nbytes = sum(buffers[b].nbytes for b in (*reads, *op.updates, *op.updates, *writes))
    workspace_bytes = device.workspace_bytes(op.record, op.step, roles.keys())
    return replace(op, roles=roles, reads=reads, writes=writes, nbytes=nbytes, workspace_bytes=workspace_bytes)
