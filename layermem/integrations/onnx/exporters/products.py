"""Convolutions and products with matrices of weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from layermem.errors import InputError
from layermem.integrations.onnx.graph import Link, Piece
from layermem.integrations.onnx.registry import exports
from layermem.layers.base import Tensor, Window
from layermem.layers.convolution import BaseConvolution, windows_of


def window_attributes(windows: Sequence[Window]) -> dict[str, Any]:
    pads = [window.pad for window in windows]
    return {
        "kernel_shape": [window.kernel for window in windows],
        "strides": [window.stride for window in windows],
        "pads": [*pads, *pads],
        "dilations": [window.dilation for window in windows],
    }


CONVOLUTIONS = ("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")


@exports(*CONVOLUTIONS, "Deconvolution", operators="Conv, ConvTranspose", whole=True)
def convolution(piece: Piece) -> None:
    """Write a convolution of any rank: the axes before the channels are items; without a spatial axis, one of size 1 is
    added."""
    p, x = piece.message.convolution_param, piece.x[0]
    axis = piece.layer.axis(p.axis, Tensor(x))
    windows = windows_of(p, x[axis + 1 :]) or [Window(1, 1)]
    spatial = x[axis + 1 :] or (1,)
    images = (prod(x[:axis]), x[axis], *spatial)
    assert isinstance(piece.layer, BaseConvolution)
    kernel = tuple(window.kernel for window in windows)
    weights = [piece.weight(0, (*piece.value(0).shape[:2], *kernel))]
    weights += [piece.weight(1)] if p.bias_term else []
    op = "ConvTranspose" if piece.type == "Deconvolution" else "Conv"
    for i, bottom in enumerate(piece.inputs):
        image = piece.reshaped(bottom, x, images)
        maps = (images[0], piece.layer.num_output, *(piece.y[i][axis + 1 :] or (1,)))
        link = Link(op, tuple(weights), {**window_attributes(windows), "group": piece.layer.groups})
        piece.chain(image, link, *piece.reshape_link(maps, piece.y[i]), top=i)


@exports("Im2col", operators="Conv with one weight of 1 for each output channel", whole=True)
def im2col(piece: Piece) -> None:
    p, x = piece.message.convolution_param, piece.x[0]
    axis = piece.layer.axis(p.axis, Tensor(x))
    windows = windows_of(p, x[axis + 1 :])
    if not windows:
        raise InputError("has no spatial axis to take windows of; remove the layer")
    images = (prod(x[:axis]), *x[axis:])
    taps = prod(window.kernel for window in windows)
    one_hot = np.tile(np.eye(taps, dtype=np.float32), (x[axis], 1))
    weights = piece.constant("taps", one_hot.reshape(-1, 1, *(window.kernel for window in windows)))
    maps = (images[0], x[axis] * taps, *piece.y[0][axis + 1 :])
    link = Link("Conv", (weights,), {**window_attributes(windows), "group": x[axis]})
    piece.chain(piece.reshaped(piece.inputs[0], x, images), link, *piece.reshape_link(maps, piece.y[0]))


@exports("InnerProduct", operators="Flatten or Reshape, Gemm, Reshape")
def inner_product(piece: Piece) -> None:
    p, x = piece.message.inner_product_param, piece.x[0]
    axis = piece.layer.axis(p.axis)
    rows, inner = prod(x[:axis]), prod(x[axis:])
    weights = [piece.weight(0)] + ([piece.weight(1)] if p.bias_term else [])
    flat: tuple[Link, ...] = () if x == (rows, inner) else (Link("Flatten", (), {"axis": axis}),)
    product = Link("Gemm", tuple(weights), {"transB": 0 if p.transpose else 1})
    piece.chain(piece.inputs[0], *flat, product, *piece.reshape_link((rows, p.num_output), piece.y[0]))


@exports("Embed", operators="Cast, Gather, Add")
def embed(piece: Piece) -> None:
    rows = piece.cast(piece.inputs[0], "int64")
    bias = [Link("Add", (piece.weight(1),))] if piece.message.embed_param.bias_term else []
    piece.chain(piece.weight(0), Link("Gather", (rows,), {"axis": 0}), *bias)


@exports("BatchReindex", operators="Cast, Gather")
def batch_reindex(piece: Piece) -> None:
    piece.emit("Gather", piece.inputs[0], piece.cast(piece.inputs[1], "int64"), top=0, axis=0)
