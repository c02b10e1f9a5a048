"""InnerProduct: a convolution of images of one pixel.

Where x is an image whose memory is not in the order of the weights (a transposed weight, or an axis other than the
channels'), it is first copied into Caffe's order in the workspace; so is dy, and dx is copied back the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.channel_sums import Columns, channel_sums
from layermem.backends.cuda.implicit_gemm import (
    ENGINES,
    ConvProblem,
    Epilogue,
    conv_dgrad,
    conv_fprop,
    conv_wgrad,
    conv_wgrad_bytes,
)
from layermem.backends.cuda.launch import Addresses, Launch, Workspace, kernel, workspace_bytes
from layermem.backends.cuda.shape import interleaved, reorder
from layermem.layers import Tensor
from layermem.utils.units import aligned


def conv_problem(layer: Any) -> ConvProblem:
    """With transposed weights the roles are a Deconvolution's: x holds the outputs, y the image."""
    channels, outputs = (layer.outputs, layer.inner) if layer.transpose else (layer.inner, layer.outputs)
    return ConvProblem(layer.rows, 1, 1, channels, 1, 1, outputs)


def reorders_x(layer: Any) -> bool:
    return interleaved(layer.bottoms[0]) is not None and not layer.spatial


def reorders_y(layer: Any) -> bool:
    return interleaved(layer.tops[0]) is not None


def plain(tensor: Tensor) -> Tensor:
    return Tensor((tensor.count,))


def in_caffe_order(tensor: Tensor, address: int, reorders: bool, workspace: Workspace) -> tuple[int, list[Launch]]:
    """The address of the blob in Caffe's order, and the launches that copy it there."""
    if not reorders:
        return address, []
    copy = workspace.take(tensor.nbytes)
    return copy, list(reorder(copy, plain(tensor), address, tensor))


@kernel("InnerProduct.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from fprop(layer, b, Epilogue(b["w1"]))


def takes_epilogue(layer: Any) -> bool:
    """Whether the product writes y in place and so takes a whole Epilogue; otherwise only bias and accumulation."""
    return not layer.transpose and not reorders_y(layer)


def fprop(layer: Any, b: Addresses, epilogue: Epilogue) -> Iterator[Launch]:
    engine, problem, workspace = ENGINES[b.precision], conv_problem(layer), Workspace(b["workspace"])
    x, copies = in_caffe_order(layer.bottoms[0], b["x0"], reorders_x(layer), workspace)
    y = workspace.take(layer.tops[0].nbytes) if reorders_y(layer) else b["y0"]
    yield from copies
    if layer.transpose:
        yield conv_dgrad(engine, problem, y, x, b["w0"], epilogue.bias, accumulate=epilogue.residual == y)
    else:
        applied = Epilogue(epilogue.bias) if reorders_y(layer) else epilogue
        yield conv_fprop(engine, problem, y, x, b["w0"], applied)
    if reorders_y(layer):
        yield from reorder(b["y0"], layer.tops[0], y, plain(layer.tops[0]), epilogue.residual == b["y0"])


@kernel("InnerProduct.dgrad")
def dgrad(layer: Any, b: Addresses) -> Iterator[Launch]:
    engine, problem, workspace = ENGINES[b.precision], conv_problem(layer), Workspace(b["workspace"])
    accumulate, reorders = b.accumulates("dx0"), reorders_x(layer)
    dy, copies = in_caffe_order(layer.tops[0], b["dy0"], reorders_y(layer), workspace)
    dx = workspace.take(layer.bottoms[0].nbytes) if reorders else b["dx0"]
    yield from copies
    in_place = accumulate and not reorders
    if layer.transpose:
        yield conv_fprop(engine, problem, dx, dy, b["w0"], Epilogue(residual=dx if in_place else 0))
    else:
        yield conv_dgrad(engine, problem, dx, dy, b["w0"], accumulate=in_place)
    if reorders:
        yield from reorder(b["dx0"], layer.bottoms[0], dx, plain(layer.bottoms[0]), accumulate)


@kernel("InnerProduct.wgrad")
def wgrad(layer: Any, b: Addresses) -> Iterator[Launch]:
    engine, problem, workspace = ENGINES[b.precision], conv_problem(layer), Workspace(b["workspace"])
    dy, copies = in_caffe_order(layer.tops[0], b["dy0"], reorders_y(layer), workspace)
    yield from copies
    if "dw0" in b:
        x, copies = in_caffe_order(layer.bottoms[0], b["x0"], reorders_x(layer), workspace)
        yield from copies
        out, image = (x, dy) if layer.transpose else (dy, x)
        yield from conv_wgrad(engine, problem, b["dw0"], out, image, b.accumulates("dw0"), workspace.next)
    if "dw1" in b:
        at = Columns(layer.rows, layer.outputs)
        yield from channel_sums(at, b["dw1"], dy, b.accumulates("dw1"), workspace.next)


@workspace_bytes("InnerProduct.forward", "InnerProduct.dgrad")
def copy_bytes(layer: Any, roles: Collection[str]) -> int:
    x, y = aligned(layer.bottoms[0].nbytes), aligned(layer.tops[0].nbytes)
    return x * reorders_x(layer) + y * reorders_y(layer)


@workspace_bytes("InnerProduct.wgrad")
def wgrad_bytes(layer: Any, roles: Collection[str]) -> int:
    y = aligned(layer.tops[0].nbytes) * reorders_y(layer)
    x = aligned(layer.bottoms[0].nbytes) * reorders_x(layer) if "dw0" in roles else 0
    sums = Columns(layer.rows, layer.outputs).part_bytes() if "dw1" in roles else 0
    return x + y + max(conv_wgrad_bytes(conv_problem(layer)) if "dw0" in roles else 0, sums)
