"""Implicit GEMM: launches of conv_fprop and conv_dgrad (cuda/conv.cuh), with what follows in them.

Launches of conv_wgrad are in wgrad.py, and the tiles of all three in gemm_tiles.py.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from layermem.backends.cuda import gemm_tiles
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.direct_problems import is_direct_wgrad
from layermem.backends.cuda.gemm_tiles import DGRAD, DGRAD_SUMS, FPROP, VECTOR, Engine, group_channels, problem_struct
from layermem.backends.cuda.launch import Launch, ceil_div, divider
from layermem.backends.struct_layout import StructValue, StructValues
from layermem.ops import MOMENTS_ROWS, Conv, ConvProblem, InnerProduct

MASK_BITS = 8  # of a byte of a ReLU's mask


class Epilogue(NamedTuple):
    """The struct of that name: y = relu(sum + bias + residual) and its mask.  Addresses, 0 for what is left out.

    largest_zero    of the record (ops.EndsInRelu)
    """

    bias: int = 0
    residual: int = 0
    mask: int = 0
    relu: bool = False
    largest_zero: float = 0.0


NO_EPILOGUE = Epilogue()


def masks_bytes(problem: ConvProblem) -> bool:
    """Whether no byte of a mask of the maps has bits of two pixels, or of two groups that have tiles of their own."""
    outputs = problem.k if is_direct_wgrad(problem) else problem.k // problem.groups
    return outputs % MASK_BITS == 0


def epilogue_of(op: Conv | InnerProduct, call: CudaCall, problem: ConvProblem) -> Epilogue:
    """What of the epilogue runs in conv_fprop; a ReLU whose mask would share bytes does not."""
    relu = op.relu and not (call["mask"] and not masks_bytes(problem))
    residual = call["x1"] if op.residual else 0  # else x1 is the second bottom, if there is one
    return Epilogue(call["w1"], residual, call["mask"] if relu else 0, relu, op.largest_zero)


def writes_moments() -> bool:
    """Whether the rows of some tile of conv_fprop are whole units of moments."""
    return any(tile.m % MOMENTS_ROWS == 0 for tile in gemm_tiles.TILES)


def conv_fprop(
    engine: Engine,
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
    moments        where the moments of the maps go, if writes_moments()
    filter_pitch   given where each group has a part of all rows of the weights, which are of so many elements
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
    """The struct ConvFpropArgs of cuda/conv.cuh."""
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
    engine: Engine,
    problem: ConvProblem,
    image: int,
    maps: int,
    weights: int,
    bias: int = 0,
    accumulate: bool = False,
    *,
    maps_pitch: int = 0,
    resume: bool = False,
    kept: int = 0,
    norm: StructValues | None = None,
) -> Launch:
    """A strided dgrad is one problem per phase, stride_h x stride_w of them.

    kept         bits of the image: elements without theirs become zero; 0 keeps all
    norm         the struct NormGradient of cuda/conv_sums.cuh, if leaves_norm_sums(), whose sums are taken on the way
    maps_pitch   given where the maps, and the rows of the weights, are a band of more; `resume`: the image holds the
                 sums over the bands before, and this one goes on from there
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
        "kept": kept,
        "problem": problem_struct(problem, maps_pitch),
        "by_outputs": divider(outputs),
        "accumulate": accumulate,
        "resume": resume,
    }
    if norm is None:
        return engine.launch(DGRAD, width, "ConvDgradArgs", matrices, depth, rows=rows, **dgrad)
    return engine.launch(DGRAD_SUMS, width, "ConvDgradSumsArgs", matrices, depth, rows=rows, dgrad=dgrad, norm=norm)


def leaves_norm_sums(engine: Engine, problem: ConvProblem) -> bool:
    """Whether conv_dgrad takes the sums that a BatchNorm needs of what it writes: its kernels are those of several
    elements in an access and of one phase."""
    width = engine.vector_width(problem, *group_channels(problem))
    return writes_moments() and width >= VECTOR and problem.stride == (1, 1)
