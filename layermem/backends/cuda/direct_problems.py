"""Which convolutions run directly (cuda/depthwise.cu, cuda/grouped.cu), not as products of matrices: those whose groups
have so few channels that tiles would be mostly empty.

One input channel a group: all of them.  Groups of 4, 8 and 16 channels under windows of 3 x 3: by shape, product and
precision, where these kernels are ahead in modelled cycles, none of them measured.  They compute in fp32, in all
precisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from layermem.backends.cuda.families import is_on
from layermem.ops import ConvProblem

MOST_DEPTHWISE = 4  # outputs of a group with one input channel
GROUP_SIZES, TAPS, STRIDES = (4, 8, 16), 3, (1, 2)  # of grouped.py: channels, taps along each axis, strides of them
MOST_CHANNELS: Mapping[str, int] = MappingProxyType({"fp32": 16, "fp32x3": 8, "tf32": 8, "bf16": 8})  # of a group


def is_depthwise(problem: ConvProblem) -> bool:
    """Whether groups have one input channel each, and few outputs."""
    return problem.groups == problem.c > 1 and problem.k <= MOST_DEPTHWISE * problem.c and is_on("depthwise")


def is_grouped(problem: ConvProblem, most: int = GROUP_SIZES[-1]) -> bool:
    """Whether grouped.py has kernels, and groups have at most so many channels."""
    channels, strides = problem.c // problem.groups, set(problem.stride)
    has_groups = problem.groups > 1 and problem.k == problem.c and channels in GROUP_SIZES and channels <= most
    has_window = problem.kernel == (TAPS, TAPS) and problem.dilation == (1, 1)
    has_strides = len(strides) == 1 and strides.issubset(STRIDES)
    return has_groups and has_window and has_strides and is_on("grouped")


def is_direct_fprop(problem: ConvProblem, precision: str) -> bool:
    """Whether fprop runs so, with products in this precision."""
    return is_depthwise(problem) or is_grouped(problem, MOST_CHANNELS[precision])


def is_direct_dgrad(problem: ConvProblem, precision: str) -> bool:
    """Whether dgrad does.  With a stride, a phase is a product over the outputs of a few taps alone."""
    most = MOST_CHANNELS[precision] if problem.stride == (1, 1) else GROUP_SIZES[-1]
    return is_depthwise(problem) or is_grouped(problem, most)


def is_direct_wgrad(problem: ConvProblem) -> bool:
    """Whether wgrad does, in all precisions: its parts, and so its workspace, depend on shapes alone."""
    return is_depthwise(problem) or is_grouped(problem)


def is_direct(step: str, problem: ConvProblem, precision: str, *, transposed: bool = False) -> bool:
    """Whether that step of a convolution does; `transposed`: of a deconvolution, whose fprop is the problem's dgrad."""
    if step == "wgrad":
        return is_direct_wgrad(problem)
    is_dgrad = (step == "dgrad") != transposed
    return is_direct_dgrad(problem, precision) if is_dgrad else is_direct_fprop(problem, precision)
