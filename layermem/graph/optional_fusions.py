"""Fusions that take bytes of their own, which a step may do without: its results are the same bits.

    Conv.dgrad+relu         masks of ReLUs, from forward to backward, beside outputs that are kept anyway
    Conv.forward+moments    partial sums for a BatchNorm, from its convolution to it

Both save passes over activations.  A step without them is *apart*: it needs fewer bytes, or more, where a mask frees an
output earlier.  Which of the two steps runs is decided with the plan (layermem/fusions.py).
"""

from __future__ import annotations

from copy import copy
from typing import TypeVar

from layermem.graph.conv_moments import MOMENTS
from layermem.graph.masked_dgrad import BOTTOM_MASK
from layermem.graph.op_builder import Device
from layermem.graph.ops import Graph
from layermem.ops import CONV_MOMENTS, MASKED_DGRAD

ROLES = {BOTTOM_MASK: MASKED_DGRAD, MOMENTS: CONV_MOMENTS}  # of an op that is fused so
OPTIONAL = frozenset(ROLES.values())

D = TypeVar("D", bound=Device)


def fused_in(graph: Graph) -> tuple[str, ...]:
    """The optional fusions that `graph` has, by name."""
    return tuple(sorted({ROLES[role] for op in graph.ops for role in op.roles if role in ROLES}))


def without_fusions(device: D) -> D:
    """`device`, for graphs without optional fusions."""
    apart = copy(device)
    apart.fusions = device.fusions - OPTIONAL
    return apart
