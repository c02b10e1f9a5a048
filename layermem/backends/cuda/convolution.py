"""Convolution and Deconvolution: conv_fprop, conv_dgrad and conv_wgrad; a Deconvolution exchanges image and maps.

The epilogue of conv_fprop includes a residual, a ReLU and its mask, unless channels are not a multiple of eight: a byte
of the mask would hold bits of two pixels, so the ReLU is a separate launch, in place.  The epilogue of conv_dgrad
includes the backward of the ReLU that made x (graph/rewrite.py).  conv_fprop also computes moments for the BatchNorm
after it, and conv_dgrad sums for the BatchNorm before it; their tiles then have the rows of a unit.

Convolutions with few channels per group run directly (direct.py), with the same epilogues except moments and sums.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layermem.backends.cuda.activation import relu_in_place
from layermem.backends.cuda.base import CudaCall, kernel, sums_role
from layermem.backends.cuda.products import depthwise, grouped
from layermem.backends.cuda.products.depthwise import DepthwiseWgrad
from layermem.backends.cuda.products.direct import DirectWgrad
from layermem.backends.cuda.products.direct_problems import (
    is_depthwise,
    is_direct_dgrad,
    is_direct_fprop,
    is_direct_wgrad,
)
from layermem.backends.cuda.products.gemm_tiles import DGRAD, FPROP
from layermem.backends.cuda.products.grouped import GroupedWgrad
from layermem.backends.cuda.products.implicit_gemm import Epilogue, conv_dgrad, conv_fprop, epilogue_of, masks_bytes
from layermem.backends.cuda.products.warpgroup import engine_of, leaves_moments, leaves_norm_sums
from layermem.backends.cuda.products.weight_tiles import operand_weights
from layermem.backends.cuda.products.wgrad_slices import (
    WgradMemory,
    conv_wgrad_carry_bytes,
    conv_wgrad_of,
    conv_wgrad_open_bytes,
    conv_wgrad_workspace_bytes_of,
)
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.cuda.support.moments import NormOperands, Units, batch_moments, gradient_sums
from layermem.backends.struct_layout import StructValues
from layermem.ops import NORM_OPERANDS, Conv, ConvProblem, Deconv

# -- direct convolutions ----------------------------------------------------------------------------------------------


def direct_fprop(problem: ConvProblem, maps: int, image: int, filters: int, epilogue: Epilogue, suffix: str) -> Launch:
    launch_of = depthwise.fprop if is_depthwise(problem) else grouped.fprop
    return launch_of(problem, maps, image, filters, epilogue, suffix)


def direct_dgrad(
    problem: ConvProblem,
    image: int,
    maps: int,
    filters: int,
    suffix: str,
    *,
    bias: int = 0,
    accumulate: bool = False,
    bottom_mask: int = 0,
) -> Launch:
    launch_of = depthwise.dgrad if is_depthwise(problem) else grouped.dgrad
    return launch_of(problem, image, maps, filters, bias, accumulate, bottom_mask=bottom_mask, suffix=suffix)


def direct_wgrad(op: Conv | Deconv) -> DirectWgrad:
    return (DepthwiseWgrad if is_depthwise(op.problem) else GroupedWgrad).of(op.problem, op.batch_slice)


# -- forward and dgrad -------------------------------------------------------------------------------------------------


def narrow_fprop(op: Conv) -> list[str]:
    """Roles in 16 bits: all blobs, or only the maps if the image is in fp32."""
    if op.relu and not masks_bytes(op.problem):
        return []
    return [r"x\d+|y\d+", *([] if op.residual else [r"y\d+"])]


@kernel(Conv, "forward", narrow=narrow_fprop)
def convolution_fprop(op: Conv, call: CudaCall) -> Iterator[Launch]:
    engine, problem = engine_of(call, "x0", op.problem), op.problem
    epilogue = epilogue_of(op, call, problem)
    runs_directly = is_direct_fprop(problem, call.precision)
    in_epilogue = call["moments"] if leaves_moments(engine) and not runs_directly else 0
    if runs_directly:
        for i in range(op.pairs):
            yield direct_fprop(problem, call[f"y{i}"], call[f"x{i}"], call["w0"], epilogue, call.suffix)
    else:
        weights, rounding = operand_weights(engine, FPROP, problem, call["w0"], call.workspace)
        yield from rounding
        for i in range(op.pairs):
            yield conv_fprop(engine, problem, call[f"y{i}"], call[f"x{i}"], weights, epilogue, in_epilogue)
    if call["moments"] and not in_epilogue:
        yield from batch_moments(Units.of(problem.maps), call["y0"], call["moments"], call.suffix)
    if op.relu and not epilogue.relu:
        yield relu_in_place(op.problem.maps, call["y0"], call["mask"], op.largest_zero)


@kernel(Conv, "dgrad", narrow=r"dx\d+|dy\d+|norm_x")
def convolution_dgrad(op: Conv, call: CudaCall) -> Iterator[Launch]:
    problem, pairs = op.problem, [i for i in range(op.pairs) if f"dx{i}" in call]
    operands = [(call[f"dx{i}"], call[f"dy{i}"], call.accumulates(f"dx{i}")) for i in pairs]
    bottom_mask, sums = call["bottom_mask"], call["norm_sums"]
    norm = norm_operands_of(op, call)
    in_epilogue: StructValues | None = None
    if is_direct_dgrad(problem, call.precision):
        for dx, dy, adds in operands:
            yield direct_dgrad(problem, dx, dy, call["w0"], call.suffix, accumulate=adds, bottom_mask=bottom_mask)
    else:
        engine = engine_of(call, "dy0", problem)
        weights, rounding = operand_weights(engine, DGRAD, problem, call["w0"], call.workspace)
        yield from rounding
        if sums and leaves_norm_sums(engine, problem):
            in_epilogue = {"parts": sums, **norm.struct}
        for dx, dy, adds in operands:
            yield conv_dgrad(
                engine, problem, dx, dy, weights, accumulate=adds, bottom_mask=bottom_mask, norm=in_epilogue
            )
    if sums and in_epilogue is None:
        yield from gradient_sums(Units.of(problem.image), call["dx0"], norm, sums, call.suffix)


def norm_operands_of(op: Conv, call: CudaCall) -> NormOperands:
    x, mean, inv_std, factor, bias = (call[role] for role in NORM_OPERANDS)
    return NormOperands(x, mean, inv_std, factor, bias, relu=bool(factor), largest_zero=op.largest_zero)


@kernel(Deconv, "forward", narrow=r"x\d+|y\d+")
def deconvolution_fprop(op: Deconv, call: CudaCall) -> Iterator[Launch]:
    engine, problem = engine_of(call, "y0", op.problem), op.problem
    if is_direct_dgrad(problem, call.precision):
        for i in range(op.pairs):
            yield direct_dgrad(problem, call[f"y{i}"], call[f"x{i}"], call["w0"], call.suffix, bias=call["w1"])
        return
    has_bias = bool(call["w1"])
    weights, rounding = operand_weights(engine, DGRAD, problem, call["w0"], call.workspace, has_bias=has_bias)
    yield from rounding
    for i in range(op.pairs):
        yield conv_dgrad(engine, problem, call[f"y{i}"], call[f"x{i}"], weights, call["w1"])


@kernel(Deconv, "dgrad", narrow=r"dx\d+|dy\d+")
def deconvolution_dgrad(op: Deconv, call: CudaCall) -> Iterator[Launch]:
    problem, pairs = op.problem, [i for i in range(op.pairs) if f"dx{i}" in call]
    operands = [
        (call[f"dx{i}"], call[f"dy{i}"], Epilogue(residual=call[f"dx{i}"] * call.accumulates(f"dx{i}"))) for i in pairs
    ]
    if is_direct_fprop(problem, call.precision):
        for dx, dy, epilogue in operands:
            yield direct_fprop(problem, dx, dy, call["w0"], epilogue, call.suffix)
        return
    engine = engine_of(call, "dy0", problem)
    weights, rounding = operand_weights(engine, FPROP, problem, call["w0"], call.workspace)
    yield from rounding
    for dx, dy, epilogue in operands:
        yield conv_fprop(engine, problem, dx, dy, weights, epilogue)


# -- wgrad -------------------------------------------------------------------------------------------------------------


def wgrad_workspace_bytes(op: Conv | Deconv, roles: Collection[str]) -> int:
    return max(
        filters_workspace_bytes(op) if sums_role("dw0", roles) else 0,
        bias_columns(op).part_bytes() if sums_role("dw1", roles) else 0,
    )


def filters_workspace_bytes(op: Conv | Deconv) -> int:
    if is_direct_wgrad(op.problem):
        return direct_wgrad(op).workspace_bytes
    return conv_wgrad_workspace_bytes_of(op.problem, op.batch_slice)


def wgrad_carry_bytes(op: Conv | Deconv, role: str) -> int:
    """Bytes of the carries of all pairs, one after the other."""
    return op.pairs * pair_carry_bytes(op, role)


def pair_carry_bytes(op: Conv | Deconv, role: str) -> int:
    if op.batch_slice is None:
        return 0
    if role == "dw0" and is_direct_wgrad(op.problem):
        return direct_wgrad(op).carry_bytes
    return conv_wgrad_carry_bytes(op.problem) if role == "dw0" else bias_columns(op).carry_bytes()


def wgrad_open_bytes(op: Conv | Deconv, role: str) -> int:
    return op.pairs * pair_open_bytes(op) if role == "dw0" else 0


def pair_open_bytes(op: Conv | Deconv) -> int:
    return (
        0
        if op.batch_slice is None or is_direct_wgrad(op.problem)
        else conv_wgrad_open_bytes(op.problem, op.batch_slice)
    )


def wgrad_in_place(op: Conv | Deconv, role: str) -> bool:
    return role == "dw0" and op.pairs == 1 and not is_direct_wgrad(op.problem)


def bias_columns(op: Conv | Deconv) -> Columns:
    return Columns.of(op.problem.image if isinstance(op, Deconv) else op.problem.maps).within(op.batch_slice)


def narrow_wgrad(op: Conv) -> list[str]:
    """Roles as in fprop; for a slice all blobs, because passed-on windows are gathered from blobs of one type."""
    return [r"x\d+|dy\d+", *([] if op.batch_slice is not None else [r"dy\d+"])]


@kernel(
    Conv,
    "wgrad",
    workspace=wgrad_workspace_bytes,
    carry=wgrad_carry_bytes,
    open=wgrad_open_bytes,
    in_place=wgrad_in_place,
    narrow=narrow_wgrad,
)
def convolution_wgrad(op: Conv, call: CudaCall) -> Iterator[Launch]:
    yield from wgrad(op, call, maps="dy", image="x")


@kernel(
    Deconv,
    "wgrad",
    workspace=wgrad_workspace_bytes,
    carry=wgrad_carry_bytes,
    open=wgrad_open_bytes,
    in_place=wgrad_in_place,
    narrow=r"x\d+|dy\d+",
)
def deconvolution_wgrad(op: Deconv, call: CudaCall) -> Iterator[Launch]:
    yield from wgrad(op, call, maps="x", image="dy")


def wgrad(op: Conv | Deconv, call: CudaCall, *, maps: str, image: str) -> Iterator[Launch]:
    engine, problem = engine_of(call, f"{image}0", op.problem), op.problem
    for i in range(op.pairs):
        if call.sums("dw0"):
            accumulate = i > 0 or call.accumulates("dw0")
            sums = call.carry("dw0") + i * pair_carry_bytes(op, "dw0")
            x, dy = call[f"{image}{i}"], call[f"{maps}{i}"]
            if is_direct_wgrad(problem):
                yield from direct_wgrad(op).launches(call["dw0"], dy, x, accumulate, call.workspace, sums, call.suffix)
            else:
                memory = WgradMemory(call.workspace, sums, call.open("dw0") + i * pair_open_bytes(op))
                yield from conv_wgrad_of(op.batch_slice, engine, problem, call["dw0"], dy, x, accumulate, memory)
        if call.sums("dw1"):
            accumulate = i > 0 or call.accumulates("dw1")
            sums = call.carry("dw1", call.workspace) + i * pair_carry_bytes(op, "dw1")
            yield from channel_sums(bias_columns(op), call["dw1"], call[f"dy{i}"], accumulate, sums, suffix=call.suffix)
