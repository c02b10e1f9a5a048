"""Implicit GEMM: launches of conv_fprop and conv_dgrad (cuda/conv.cuh), with their epilogues.

Launches of conv_wgrad are in wgrad.py, and the tiles of all three in gemm_tiles.py.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.products.direct_problems import is_direct_wgrad
from layermem.backends.cuda.products.gemm_tiles import (
    DGRAD,
    DGRAD_SUMS_KERNEL,
    FPROP,
    VECTOR,
    GemmEngine,
    group_channels,
    problem_struct,
)
from layermem.backends.cuda.support.launch import Launch, ceil_div, divider
from layermem.backends.struct_layout import StructValue, StructValues
from layermem.ops import MOMENTS_ROWS, Conv, ConvProblem, InnerProduct

MASK_BITS = 8  # in a byte of a ReLU's mask


class Epilogue(NamedTuple):
    """The fields of the struct of that name: y = relu(sum + bias + residual) and its mask.  Absent operands have
    address 0.

    largest_zero    as in the record (ops.EndsInRelu)
    """

    bias: int = 0
    residual: int = 0
    mask: int = 0
    relu: bool = False
    largest_zero: float = 0.0


NO_EPILOGUE = Epilogue()


def masks_bytes(problem: ConvProblem) -> bool:
    """Whether each byte of a mask of the maps has bits of one pixel, and of one group if groups have own tiles."""
    outputs = problem.k if is_direct_wgrad(problem) else problem.k // problem.groups
    return outputs % MASK_BITS == 0


def epilogue_of(op: Conv | InnerProduct, call: CudaCall, problem: ConvProblem) -> Epilogue:
    """The epilogue that runs in conv_fprop; a ReLU whose mask would share bytes is left out."""
    relu = op.relu and not (call["mask"] and not masks_bytes(problem))
    residual = call["x1"] if op.residual else 0  # otherwise x1 is the second bottom, if there is one
    return Epilogue(call["w1"], residual, call["mask"] if relu else 0, relu, op.largest_zero)


def writes_moments() -> bool:
    """Whether the rows of some tile of conv_fprop are whole units of moments."""
    return any(tile.m % MOMENTS_ROWS == 0 for tile in gemm_tiles.TILES)


def conv_fprop(
    engine: GemmEngine,
    problem: ConvProblem,
    maps: int,
    image: int,
    weights: int,
    epilogue: Epilogue = NO_EPILOGUE,
    moments: int = 0,
    *,
    filter_pitch: int = 0,
) -> Launch:
    """
    moments        address for the moments of the maps, if writes_moments()
    filter_pitch   elements of a row of the weights, if each group has a part of every row
    """
    channels, outputs = group_channels(problem)
    matrices, depth = (problem.positions, outputs, problem.groups), prod(problem.kernel) * channels
    rows, width = MOMENTS_ROWS if moments else 1, engine.vector_width(problem, channels)
    plain = engine.launch(
        FPROP,
        width,
        "ConvFpropArgs",
        matrices,
        depth,
        rows=rows,
        **fprop_struct(problem, maps, image, weights, epilogue, moments, filter_pitch),
    )
    return engine.of_patch(plain, problem, matrices) if width == 1 else plain


def fprop_struct(
    problem: ConvProblem,
    maps: int,
    image: int,
    weights: int,
    epilogue: Epilogue,
    moments: int = 0,
    filter_pitch: int = 0,
) -> StructValues:
    """The fields of the struct ConvFpropArgs of cuda/conv.cuh."""
    channels, outputs = group_channels(problem)
    depth = prod(problem.kernel) * channels
    return {
        "maps": maps,
        "image": image,
        "filter": weights,
        "problem": problem_struct(problem),
        "by_channels": divider(channels),
        "by_kernel_w": divider(problem.kernel[1]),
        "epilogue": epilogue._asdict(),
        "moments": moments,
        "by_maps_w": divider(problem.out_w),
        "by_maps_h": divider(problem.out_h),
        "filter_pitch": filter_pitch or depth,
        "filter_step": depth if filter_pitch else outputs * depth,
    }


def conv_dgrad(
    engine: GemmEngine,
    problem: ConvProblem,
    image: int,
    maps: int,
    weights: int,
    bias: int = 0,
    accumulate: bool = False,
    *,
    maps_pitch: int = 0,
    resume: bool = False,
    bottom_mask: int = 0,
    norm: StructValues | None = None,
) -> Launch:
    """A strided dgrad is one problem per phase, stride_h x stride_w of them.

    bottom_mask         bits of the image: elements with a cleared bit become zero; 0 keeps all
    norm         the struct NormGradient of cuda/conv_sums.cuh, if leaves_norm_sums(), whose sums the epilogue computes
    maps_pitch   pitch of the maps if they and the rows of the weights are a band;  resume  the image holds the sums
                 of the bands before, which this launch continues
    """
    channels, outputs = group_channels(problem)
    stride_h, stride_w = problem.stride
    m = problem.n * ceil_div(problem.h, stride_h) * ceil_div(problem.w, stride_w)  # of the largest phase
    repeat = problem.groups * stride_h * stride_w
    matrices, depth = (m, channels, repeat), ceil_div(prod(problem.kernel) * outputs, stride_h * stride_w)
    width = engine.vector_width(problem, channels, outputs, maps_pitch)
    rows = 1 if norm is None else MOMENTS_ROWS
    dgrad: dict[str, StructValue] = {
        "image": image,
        "maps": maps,
        "filter": weights,
        "bias": bias,
        "bottom_mask": bottom_mask,
        "problem": problem_struct(problem, maps_pitch),
        "by_outputs": divider(outputs),
        "accumulate": accumulate,
        "resume": resume,
    }
    if norm is None:
        return engine.launch(DGRAD, width, "ConvDgradArgs", matrices, depth, rows=rows, **dgrad)
    return engine.launch(
        DGRAD_SUMS_KERNEL, width, "ConvDgradSumsArgs", matrices, depth, rows=rows, dgrad=dgrad, norm=norm
    )


def leaves_norm_sums(engine: GemmEngine, problem: ConvProblem) -> bool:
    """Whether conv_dgrad computes a BatchNorm's sums of its result: only for vector accesses and one phase."""
    width = engine.vector_width(problem, *group_channels(problem))
    return writes_moments() and width >= VECTOR and problem.stride == (1, 1)
