"""InnerProduct: a convolution of images of one pixel.

Where x is an image whose memory is not in the order that the weights expect (a transposed weight, or an axis other than
the channels'), it is first brought into Caffe's order, in the workspace; so is dy, and dx comes back the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.kernels.channels import Columns, channel_sums
from layermem.backends.cuda.kernels.engine import ENGINES, Epilogue, Sliding, correlate, spread, weigh, weigh_bytes
from layermem.backends.cuda.kernels.shape import mixed, renamed
from layermem.backends.cuda.launch import Addresses, Launch, Scratch, kernel, workspace
from layermem.layers import Tensor
from layermem.utils.units import aligned


def product(layer: Any) -> Sliding:
    """With transposed weights the roles are a Deconvolution's: x holds the windows' values, y the image."""
    channels, outputs = (layer.outputs, layer.inner) if layer.transpose else (layer.inner, layer.outputs)
    return Sliding(layer.rows, 1, 1, channels, 1, 1, outputs)


def x_moves(layer: Any) -> bool:
    return mixed(layer.bottoms[0]) is not None and not layer.spatial


def y_moves(layer: Any) -> bool:
    return mixed(layer.tops[0]) is not None


def plain(tensor: Tensor) -> Tensor:
    return Tensor((tensor.count,))


def in_caffes_order(tensor: Tensor, address: int, moves: bool, scratch: Scratch) -> tuple[int, list[Launch]]:
    """Where the blob lies in Caffe's order, and the launches that bring it there."""
    if not moves:
        return address, []
    copy = scratch.take(tensor.nbytes)
    return copy, list(renamed(copy, plain(tensor), address, tensor))


@kernel("InnerProduct.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from multiplied(layer, b, Epilogue(b["w1"]))


def writes_y(layer: Any) -> bool:
    """Whether the product writes y as it stays, and so does all that an Epilogue asks; else bias, and adding to y."""
    return not layer.transpose and not y_moves(layer)


def multiplied(layer: Any, b: Addresses, then: Epilogue) -> Iterator[Launch]:
    scratch = Scratch(b["workspace"])
    x, moving = in_caffes_order(layer.bottoms[0], b["x0"], x_moves(layer), scratch)
    y = scratch.take(layer.tops[0].nbytes) if y_moves(layer) else b["y0"]
    yield from moving
    if layer.transpose:
        yield spread(ENGINES[b.precision], product(layer), y, x, b["w0"], then.bias, adds=then.added == y)
    else:
        yield correlate(
            ENGINES[b.precision], product(layer), y, x, b["w0"], Epilogue(then.bias) if y_moves(layer) else then
        )
    if y_moves(layer):
        yield from renamed(b["y0"], layer.tops[0], y, plain(layer.tops[0]), then.added == b["y0"])


@kernel("InnerProduct.dgrad")
def backward_data(layer: Any, b: Addresses) -> Iterator[Launch]:
    scratch, adds, moves = Scratch(b["workspace"]), b.adds("dx0"), x_moves(layer)
    dy, moving = in_caffes_order(layer.tops[0], b["dy0"], y_moves(layer), scratch)
    dx = scratch.take(layer.bottoms[0].nbytes) if moves else b["dx0"]
    yield from moving
    there = adds and not moves
    if layer.transpose:
        yield correlate(ENGINES[b.precision], product(layer), dx, dy, b["w0"], Epilogue(added=dx if there else 0))
    else:
        yield spread(ENGINES[b.precision], product(layer), dx, dy, b["w0"], adds=there)
    if moves:
        yield from renamed(b["dx0"], layer.bottoms[0], dx, plain(layer.bottoms[0]), adds)


@kernel("InnerProduct.wgrad")
def backward_weights(layer: Any, b: Addresses) -> Iterator[Launch]:
    scratch = Scratch(b["workspace"])
    dy, moving = in_caffes_order(layer.tops[0], b["dy0"], y_moves(layer), scratch)
    yield from moving
    if "dw0" in b:
        x, moving = in_caffes_order(layer.bottoms[0], b["x0"], x_moves(layer), scratch)
        yield from moving
        out, image = (x, dy) if layer.transpose else (dy, x)
        yield from weigh(ENGINES[b.precision], product(layer), b["dw0"], out, image, b.adds("dw0"), scratch.next)
    if "dw1" in b:
        yield from channel_sums(Columns(layer.rows, layer.outputs), b["dw1"], dy, b.adds("dw1"), scratch.next)


@workspace("InnerProduct.forward", "InnerProduct.dgrad")
def moved_bytes(layer: Any, roles: Collection[str]) -> int:
    x, y = aligned(layer.bottoms[0].nbytes), aligned(layer.tops[0].nbytes)
    return x * x_moves(layer) + y * y_moves(layer)


@workspace("InnerProduct.wgrad")
def backward_weights_bytes(layer: Any, roles: Collection[str]) -> int:
    y = aligned(layer.tops[0].nbytes) * y_moves(layer)
    x = aligned(layer.bottoms[0].nbytes) * x_moves(layer) if "dw0" in roles else 0
    sums = Columns(layer.rows, layer.outputs).part_bytes() if "dw1" in roles else 0
    return x + y + max(weigh_bytes(product(layer)) if "dw0" in roles else 0, sums)
