"""Normalization, Scale and Bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem import ops
from layermem.integrations.onnx.graph import Array, Link, Piece, Shape
from layermem.integrations.onnx.registry import exports
from layermem.layers.lrn import WITHIN_CHANNEL
from layermem.layers.normalization import BatchNorm


@exports("LRN", operators="LRN; within a channel Mul, AveragePool, Pow, Div")
def lrn(piece: Piece) -> None:
    p, x = piece.message.lrn_param, piece.inputs[0]
    if p.norm_region != WITHIN_CHANNEL:
        piece.emit("LRN", x, top=0, size=p.local_size, alpha=p.alpha, beta=p.beta, bias=p.k)
        return
    n = p.local_size
    pads: dict[str, Any] = {"kernel_shape": [n, n], "strides": [1, 1], "pads": [n // 2] * 4, "count_include_pad": 1}
    # Mean of the squares: alpha applies to their sum / n^2.
    mean = piece.emit("AveragePool", piece.emit("Mul", x, x), **pads)
    scale = piece.emit("Add", piece.emit("Mul", mean, piece.constant("alpha", p.alpha)), piece.constant("one", 1))
    piece.emit("Div", x, piece.emit("Pow", scale, piece.constant("beta", p.beta)), top=0)


def normalize_channels(piece: Piece, averages: tuple[Array, Array] | None, eps: float, scale: str, bias: str) -> None:
    """Normalize channels by given means and variances, or without `averages` by those of the batch."""
    if averages is not None:
        mean, variance = (piece.constant(name, value) for name, value in zip(("mean", "variance"), averages))
        piece.emit("BatchNormalization", piece.inputs[0], scale, bias, mean, variance, top=0, epsilon=eps)
        return
    x, shape = piece.inputs[0], piece.x[0]
    axes = [axis for axis in range(len(shape)) if axis != 1]
    view = (shape[1], *(1,) * (len(shape) - 2))
    centered = piece.emit("Sub", x, piece.emit("ReduceMean", x, axes=axes, keepdims=1))
    variance = piece.emit("ReduceMean", piece.emit("Mul", centered, centered), axes=axes, keepdims=1)
    deviation = piece.emit("Sqrt", piece.emit("Add", variance, piece.constant("eps", eps)))
    dims = piece.constant("channels", view, "int64")
    factor, shift = piece.emit("Reshape", scale, dims), piece.emit("Reshape", bias, dims)
    piece.chain(centered, Link("Div", (deviation,)), Link("Mul", (factor,)), Link("Add", (shift,)))


@exports("BatchNorm", operators="BatchNormalization; with the statistics of the batch ReduceMean, Sub, Mul, Div")
def batch_norm(piece: Piece) -> None:
    layer = piece.layer
    assert isinstance(layer, BatchNorm)
    channels, norm = piece.x[0][1], layer.norm
    scale, bias = (
        (piece.weight(3), piece.weight(4))
        if layer.affine
        else (piece.constant("scale", np.ones(channels)), piece.constant("bias", np.zeros(channels)))
    )
    averages = None
    if norm.global_stats:
        divisor = float(piece.value(2).reshape(-1)[0])
        factor = np.float32(0 if divisor == 0 else 1 / divisor)
        averages = (piece.value(0) * factor, piece.value(1) * factor)
    normalize_channels(piece, averages, norm.eps, scale, bias)


@exports("BN", operators="BatchNormalization; with the statistics of the batch ReduceMean, Sub, Mul, Div")
def bn(piece: Piece) -> None:
    record, channels = piece.layer.record, (piece.x[0][1],)
    if isinstance(record, ops.Scale):
        _affine(piece, record.view)
        return
    assert isinstance(record, ops.AffineNorm)
    scale, bias = piece.weight(0, channels), piece.weight(1, channels)
    averages = (piece.value(2).reshape(-1), piece.value(3).reshape(-1)) if record.global_stats else None
    normalize_channels(piece, averages, record.eps, scale, bias)


def _affine(piece: Piece, view: Shape) -> None:
    """Write x w0 + w1."""
    links = [Link(op, (piece.weight(i, _short(view)),)) for i, op in enumerate(("Mul", "Add")[: len(piece.params)])]
    piece.chain(piece.inputs[0], *links)


def _short(view: Shape) -> Shape:
    """`view` without its leading 1s, which ONNX adds again."""
    first = next((i for i, size in enumerate(view) if size != 1), len(view))
    return view[first:]


@exports("Scale", operators="Mul, Add")
def scale(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Scale)
    if len(piece.inputs) == 1:
        _affine(piece, record.view)
        return
    factor = piece.reshaped(piece.inputs[1], piece.x[1], record.view)
    bias = [Link("Add", (piece.weight(0, _short(record.view)),))] if record.bias else []
    piece.chain(piece.inputs[0], Link("Mul", (factor,)), *bias)


@exports("Bias", operators="Add")
def bias(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Bias)
    if len(piece.inputs) == 2:
        operand = piece.reshaped(piece.inputs[1], piece.x[1], record.view)
    else:
        operand = piece.weight(0, _short(record.view))
    piece.emit("Add", piece.inputs[0], operand, top=0)


@exports("MVN", operators="ReduceMean, Sub, Mul, Sqrt, Add, Div")
def mvn(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.MVN)
    x = piece.reshaped(piece.inputs[0], piece.x[0], piece.y[0])
    axes = [1, 2, 3] if record.across else [2, 3]
    mean = piece.emit("ReduceMean", x, axes=axes, keepdims=1)
    if not record.normalize:
        piece.emit("Sub", x, mean, top=0)
        return
    centered = piece.emit("Sub", x, mean)
    variance = piece.emit("ReduceMean", piece.emit("Mul", centered, centered), axes=axes, keepdims=1)
    deviation = piece.emit("Add", piece.emit("Sqrt", variance), piece.constant("eps", record.eps))
    piece.emit("Div", centered, deviation, top=0)


@exports("Normalize", operators="ReduceSumSquare, Add, Sqrt, Div, Mul")
def normalize(piece: Piece) -> None:
    p, x, rank = piece.message.norm_param, piece.inputs[0], len(piece.x[0])
    axes = list(range(1, rank)) if p.across_spatial else [1]
    squares = piece.emit("ReduceSumSquare", x, axes=axes, keepdims=1)
    length = piece.emit("Sqrt", piece.emit("Add", squares, piece.constant("eps", p.eps)))
    view = () if p.channel_shared else (piece.x[0][1], *(1,) * (rank - 2))
    piece.chain(x, Link("Div", (length,)), Link("Mul", (piece.weight(0, view),)))
