"""AffineNorm: a BatchNorm with its scale and shift."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.backends.reference.normalization import channel_mean, move_averages, normalized, per_channel
from layermem.ops import AffineNorm


def affine(call: ReferenceCall, unit: Array) -> Array:
    return unit * per_channel(call["w0"], unit) + per_channel(call["w1"], unit)


@kernel(AffineNorm, "forward")
def affine_norm_forward(op: AffineNorm, call: ReferenceCall) -> None:
    x = call["x0"]
    if op.global_stats:
        call["y0"][...] = affine(call, normalized(x, call["w2"], 1 / np.sqrt(call["w3"] + op.eps)))
        return
    mean = channel_mean(x).astype(x.dtype)  # rounded, so that a recomputation has the same bits
    variance = channel_mean((x - per_channel(mean, x)) ** 2)
    inv_std = (1 / np.sqrt(variance + op.eps)).astype(x.dtype)
    if op.kept is not None:
        statistics = {"w2": op.share * mean, "w3": (op.share * variance).astype(x.dtype)}
        move_averages(op.kept, call, statistics)
    for role, value in (("mean", mean), ("inv_std", inv_std)):
        if role in call:
            call[role][...] = value
    call["y0"][...] = affine(call, normalized(x, mean, inv_std))


@kernel(AffineNorm, "recompute")
def affine_norm_recompute(op: AffineNorm, call: ReferenceCall) -> None:
    call["y0"][...] = affine(call, normalized(call["x0"], call["mean"], call["inv_std"]))


@kernel(AffineNorm, "backward")
def affine_norm_backward(op: AffineNorm, call: ReferenceCall) -> None:
    dy = call["dy0"]
    if op.global_stats:
        call["dx0"][...] = dy * per_channel(call["w0"] / np.sqrt(call["w3"] + op.eps), dy)
        return
    # with g = scale dy:  dx = (g - mean(g) - unit mean(g unit)) / std
    unit = normalized(call["x0"], call["mean"], call["inv_std"])
    sum_dy, sum_dy_unit = (channel_mean(a) * (dy.size // op.channels) for a in (dy, dy * unit))
    share = op.channels / dy.size
    slope = call["w0"] * call["inv_std"]
    dx = dy - per_channel(sum_dy * share, dy) - unit * per_channel(sum_dy_unit * share, dy)
    for role, value in (("dw0", sum_dy_unit), ("dw1", sum_dy), ("dx0", dx * per_channel(slope, dy))):
        if role in call:
            call[role][...] = value
