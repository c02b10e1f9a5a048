"""Selects the convolutions that run directly (cuda/depthwise.cu, cuda/grouped.cu) instead of as matrix products: those
with so few channels per group that tiles would be mostly empty.

With one input channel per group, all of them run directly.  Groups of 4, 8 and 16 channels with 3 x 3 windows run
directly for those shapes, products and precisions for which these kernels need fewer modelled (not measured) cycles.
They compute in fp32 in all precisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from layermem.backends.cuda.support.families import is_on
from layermem.ops import ConvProblem

MAX_DEPTHWISE = 4  # limit of the outputs of a group with one input channel
GROUP_SIZES, TAPS, STRIDES = (4, 8, 16), 3, (1, 2)  # supported by grouped.py: channels, taps and strides per axis
MAX_CHANNELS: Mapping[str, int] = MappingProxyType({"fp32": 16, "fp32x3": 8, "tf32": 8, "bf16": 8})  # of a group


def is_depthwise(problem: ConvProblem) -> bool:
    """Whether groups have one input channel each, and few outputs."""
    return problem.groups == problem.c > 1 and problem.k <= MAX_DEPTHWISE * problem.c and is_on("depthwise")


def is_grouped(problem: ConvProblem, most: int = GROUP_SIZES[-1]) -> bool:
    """Whether grouped.py has kernels for the problem, and groups have at most `most` channels."""
    channels, strides = problem.c // problem.groups, set(problem.stride)
    has_groups = problem.groups > 1 and problem.k == problem.c and channels in GROUP_SIZES and channels <= most
    has_window = problem.kernel == (TAPS, TAPS) and problem.dilation == (1, 1)
    has_strides = len(strides) == 1 and strides.issubset(STRIDES)
    return has_groups and has_window and has_strides and is_on("grouped")


def is_direct_fprop(problem: ConvProblem, precision: str) -> bool:
    """Whether fprop runs directly, for products in this precision."""
    return is_depthwise(problem) or is_grouped(problem, MAX_CHANNELS[precision])


def is_direct_dgrad(problem: ConvProblem, precision: str) -> bool:
    """Whether dgrad runs directly.  With a stride, the alternative computes each phase as a product over few taps."""
    most = MAX_CHANNELS[precision] if problem.stride == (1, 1) else GROUP_SIZES[-1]
    return is_depthwise(problem) or is_grouped(problem, most)


def is_direct_wgrad(problem: ConvProblem) -> bool:
    """Whether wgrad runs directly, in all precisions: its parts, and so its workspace, depend only on shapes."""
    return is_depthwise(problem) or is_grouped(problem)


def is_direct(step: str, problem: ConvProblem, precision: str, *, transposed: bool = False) -> bool:
    """Whether this step of a convolution runs directly; `transposed`: of a deconvolution, whose fprop is dgrad."""
    if step == "wgrad":
        return is_direct_wgrad(problem)
    is_dgrad = (step == "dgrad") != transposed
    return is_direct_dgrad(problem, precision) if is_dgrad else is_direct_fprop(problem, precision)
