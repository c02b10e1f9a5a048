"""InnerProduct: a convolution of images of one pixel.

A band of the weights' rows is a convolution to some of the maps: dy is read at the pitch of all maps, and each sum has
the order of the whole op.

If the memory of x is not in the order of the weights (an image with a transposed weight, or with an axis other than the
channels'), x is first copied into Caffe's order in the workspace; so is dy, and dx is copied back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from layermem.backends.cuda.activation import relu_in_place
from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel, sums_role
from layermem.backends.cuda.copy import copy, reorder
from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.products.gemm_tiles import DGRAD, FPROP
from layermem.backends.cuda.products.implicit_gemm import Epilogue, conv_dgrad, conv_fprop, epilogue_of, masks_bytes
from layermem.backends.cuda.products.inner_parts import (
    PIXEL,
    dgrad_in_parts,
    dgrad_parts,
    dgrad_parts_bytes,
    forward_parts,
    forward_parts_bytes,
    fprop_in_parts,
)
from layermem.backends.cuda.products.warpgroup import engine_of
from layermem.backends.cuda.products.weight_tiles import operand_weights
from layermem.backends.cuda.products.wgrad import conv_wgrad, split_of
from layermem.backends.cuda.products.wgrad_slices import (
    WgradMemory,
    conv_wgrad_carry_bytes,
    conv_wgrad_of,
    conv_wgrad_open_bytes,
    conv_wgrad_workspace_bytes_of,
)
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import ConvProblem, InnerProduct, Tensor
from layermem.utils.units import aligned

PARTS = {"forward": forward_parts, "dgrad": dgrad_parts}


def conv_problem(op: InnerProduct) -> ConvProblem:
    """The problem of an op; with transposed weights the roles are a Deconvolution's: x holds the maps, y the image."""
    channels, outputs = (op.outputs, op.inner) if op.transpose else (op.inner, op.outputs)
    return ConvProblem(op.rows, channels, outputs, PIXEL, PIXEL)


def whole_problem(op: InnerProduct) -> ConvProblem:
    """The problem with all rows of the weights, if `op` has a band of them."""
    return replace(conv_problem(op), k=op.dy_outputs) if op.band is not None else conv_problem(op)


def pitch_of(op: InnerProduct) -> int:
    """Columns of dy in memory if `op` has a band of them, otherwise 0."""
    return 0 if op.band is None else op.band.rows


def columns_of(op: InnerProduct, address: int) -> int:
    """The address of this op's columns in the row of all outputs at `address`; 0 stays 0."""
    return address + FLOAT * op.first_output if address else 0


def reorders_x(op: InnerProduct) -> bool:
    return op.x.interleaved and not op.spatial


def reorders_y(op: InnerProduct) -> bool:
    return op.y.interleaved


def plain(tensor: Tensor) -> Tensor:
    return Tensor((tensor.count,))


def in_caffe_order(tensor: Tensor, address: int, reorders: bool, workspace: Workspace) -> tuple[int, list[Launch]]:
    """The address of the blob in Caffe's order, and the launches that copy it there."""
    if not reorders:
        return address, []
    target = workspace.take(tensor.nbytes)
    return target, list(reorder(target, plain(tensor), address, tensor))


def narrow_blobs(op: InnerProduct) -> list[str]:
    """Roles in 16 bits: those of a plain product, which stores each result once."""
    in_steps = op.transpose or reorders_x(op) or reorders_y(op) or op.band is not None
    if in_steps or (op.relu and not masks_bytes(conv_problem(op))):
        return []
    return [r"x\d|y0|dx0|dy0"]


def is_in_parts(op: InnerProduct, step: str) -> bool:
    """Whether the sums of this step are split into parts (products/inner_parts.py)."""
    return step in PARTS and PARTS[step](op).number > 1


# -- forward -----------------------------------------------------------------------------------------------------------


def copies_workspace_bytes(op: InnerProduct) -> int:
    return aligned(op.x.nbytes) * reorders_x(op) + aligned(op.y.nbytes) * reorders_y(op)


def fprop_workspace_bytes(op: InnerProduct, roles: Collection[str]) -> int:
    return copies_workspace_bytes(op) + forward_parts_bytes(op)


def narrow_fprop_blobs(op: InnerProduct) -> list[str]:
    return [] if is_in_parts(op, "forward") else narrow_blobs(op)


@kernel(InnerProduct, "forward", workspace=fprop_workspace_bytes, narrow=narrow_fprop_blobs)
def inner_product_fprop(op: InnerProduct, call: CudaCall) -> Iterator[Launch]:
    if op.transpose or reorders_y(op):
        yield from fprop_in_steps(op, call)
        return
    problem, workspace = conv_problem(op), Workspace(call.workspace)
    x, copies = in_caffe_order(op.x, call["x0"], reorders_x(op), workspace)
    epilogue = epilogue_of(op, call, problem)
    epilogue = epilogue._replace(bias=columns_of(op, epilogue.bias))
    yield from copies
    if is_in_parts(op, "forward"):
        engine = gemm_tiles.engine_of(call, "x0")
        yield from fprop_in_parts(engine, op, call["y0"], x, call["w0"], epilogue, workspace.next)
    else:
        engine = engine_of(call, "x0", whole_problem(op))
        weights, rounding = operand_weights(engine, FPROP, problem, call["w0"], call.workspace)
        yield from rounding
        yield conv_fprop(engine, problem, call["y0"], x, weights, epilogue)
    if op.relu and not epilogue.relu:
        yield relu_in_place(op.y, call["y0"], call["mask"], op.largest_zero)


def fprop_in_steps(op: InnerProduct, call: CudaCall) -> Iterator[Launch]:
    """Compute y if conv_fprop cannot write it directly: the residual is copied to y first and the product added to it,
    and a ReLU runs in place."""
    engine = engine_of(call, "x0", whole_problem(op))
    problem, workspace = conv_problem(op), Workspace(call.workspace)
    if op.residual:
        yield from copy(call["y0"], call["x1"], op.y.count)
    x, copies = in_caffe_order(op.x, call["x0"], reorders_x(op), workspace)
    y = workspace.take(op.y.nbytes) if reorders_y(op) else call["y0"]
    yield from copies
    if op.transpose:
        accumulate = op.residual and not reorders_y(op)
        yield conv_dgrad(engine, problem, y, x, call["w0"], call["w1"], accumulate=accumulate)
    else:
        yield conv_fprop(engine, problem, y, x, call["w0"], Epilogue(call["w1"]))
    if reorders_y(op):
        yield from reorder(call["y0"], op.y, y, plain(op.y), op.residual)
    if op.relu:
        yield relu_in_place(op.y, call["y0"], call["mask"], op.largest_zero)


# -- backward ----------------------------------------------------------------------------------------------------------


def dgrad_workspace_bytes(op: InnerProduct, roles: Collection[str]) -> int:
    return copies_workspace_bytes(op) + dgrad_parts_bytes(op)


def narrow_dgrad_blobs(op: InnerProduct) -> list[str]:
    return [] if is_in_parts(op, "dgrad") else narrow_blobs(op)


@kernel(InnerProduct, "dgrad", workspace=dgrad_workspace_bytes, narrow=narrow_dgrad_blobs)
def inner_product_dgrad(op: InnerProduct, call: CudaCall) -> Iterator[Launch]:
    engine = engine_of(call, "dx0", whole_problem(op))
    problem, workspace = conv_problem(op), Workspace(call.workspace)
    accumulate, reorders = call.accumulates("dx0"), reorders_x(op)
    dy, copies = in_caffe_order(op.y, call["dy0"], reorders_y(op), workspace)
    dx = workspace.take(op.x.nbytes) if reorders else call["dx0"]
    weights, rounding = operand_weights(engine, DGRAD, problem, call["w0"], call.workspace)
    yield from [*copies, *rounding]
    in_place = accumulate and not reorders
    if is_in_parts(op, "dgrad"):
        engine, maps = gemm_tiles.engine_of(call, "dx0"), columns_of(op, dy)
        yield from dgrad_in_parts(engine, op, dx, maps, call["w0"], workspace.next, accumulate=in_place)
    elif op.band is not None:
        maps, pitch, resume = columns_of(op, dy), pitch_of(op), not op.band.is_first
        yield conv_dgrad(engine, problem, dx, maps, call["w0"], maps_pitch=pitch, resume=resume)
    elif op.transpose:
        yield conv_fprop(engine, problem, dx, dy, call["w0"], Epilogue(residual=dx if in_place else 0))
    else:
        yield conv_dgrad(engine, problem, dx, dy, weights, accumulate=in_place)
    if reorders:
        yield from reorder(call["dx0"], op.x, dx, plain(op.x), accumulate)


def wgrad_workspace_bytes(op: InnerProduct, roles: Collection[str]) -> int:
    y = aligned(op.y.nbytes) * reorders_y(op)
    x = aligned(op.x.nbytes) * reorders_x(op) if sums_role("dw0", roles) else 0
    weights = 0
    if sums_role("dw0", roles):
        parts = split_of(whole_problem(op)).parts
        weights = conv_wgrad_workspace_bytes_of(conv_problem(op), op.batch_slice, parts)
    bias = bias_columns(op).part_bytes() if sums_role("dw1", roles) else 0
    return x + y + max(weights, bias)


def wgrad_carry_bytes(op: InnerProduct, role: str) -> int | None:
    if op.band is not None and op.batch_slice is not None:
        return None  # conv_wgrad_of gathers contiguous maps only
    return conv_wgrad_carry_bytes(conv_problem(op)) if role == "dw0" else bias_columns(op).carry_bytes()


def wgrad_open_bytes(op: InnerProduct, role: str) -> int:
    return (
        conv_wgrad_open_bytes(conv_problem(op), op.batch_slice) if role == "dw0" and op.batch_slice is not None else 0
    )


def wgrad_in_place(op: InnerProduct, role: str) -> bool:
    return role == "dw0"


def bias_columns(op: InnerProduct) -> Columns:
    return Columns(op.rows, op.outputs).within(op.batch_slice)


@kernel(
    InnerProduct,
    "wgrad",
    workspace=wgrad_workspace_bytes,
    carry=wgrad_carry_bytes,
    open=wgrad_open_bytes,
    in_place=wgrad_in_place,
    narrow=narrow_blobs,
)
def inner_product_wgrad(op: InnerProduct, call: CudaCall) -> Iterator[Launch]:
    engine = engine_of(call, "x0", whole_problem(op))
    problem, workspace = conv_problem(op), Workspace(call.workspace)
    dy, copies = in_caffe_order(op.y, call["dy0"], reorders_y(op), workspace)
    yield from copies
    if call.sums("dw0"):
        x, copies = in_caffe_order(op.x, call["x0"], reorders_x(op), workspace)
        yield from copies
        maps, image = (x, dy) if op.transpose else (dy, x)
        memory, accumulate = WgradMemory(workspace.next, call.carry("dw0"), call.open("dw0")), call.accumulates("dw0")
        if op.band is not None:
            yield from conv_wgrad(
                engine,
                problem,
                call["dw0"],
                columns_of(op, maps),
                image,
                accumulate,
                memory.workspace,
                split=split_of(whole_problem(op)),
                maps_pitch=pitch_of(op),
            )
            return
        yield from conv_wgrad_of(op.batch_slice, engine, problem, call["dw0"], maps, image, accumulate, memory)
    if call.sums("dw1"):
        sums, accumulate = call.carry("dw1", workspace.next), call.accumulates("dw1")
        yield from channel_sums(bias_columns(op), call["dw1"], dy, accumulate, sums, suffix=call.suffix)
