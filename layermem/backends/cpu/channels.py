"""Ops with a number per channel (BatchNorm, PReLU), LRN and Pooling."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds
from layermem.backends.cpu.moves import padded
from layermem.layers import Tensor


def channels(x: Tensor) -> Any:
    return cpu.Channels(*x.around(1))


# -- BatchNorm -------------------------------------------------------------------------------------------------------


def batch_norm_scratch(layer: Any, roles: Collection[str]) -> int:
    g = channels(layer.bottoms[0])
    if layer.global_stats:
        return int(cpu.batch_norm_global_workspace(g))
    if "dy0" in roles:
        return int(cpu.batch_norm_backward_workspace(g))
    return int(cpu.batch_norm_forward_workspace(g)) + statistics_bytes(layer, roles)


def statistics_bytes(norm: Any, roles: Collection[str]) -> int:
    """Room for mean and inv_std where nobody keeps them."""
    return sum(padded(4 * norm.channels) for stash in ("mean", "inv_std") if stash not in roles)


def statistics(a: Args, norm: Any, at: int) -> dict[str, int]:
    """Where mean and inv_std go: into the stash, or into scratch from byte `at` on."""
    room = a.scratch + at
    mean = a["mean"] or room
    return {"mean": mean, "inv_std": a["inv_std"] or room + (padded(4 * norm.channels) if mean == room else 0)}


@binds("BatchNorm.forward", scratch=batch_norm_scratch)
def batch_norm_forward(a: Args) -> list[Launch]:
    it, g = a.layer, channels(a.layer.bottoms[0])
    averages = {role: a[role] for role in ("w0", "w1", "w2")}
    if it.global_stats:
        return [cpu.batch_norm_global_forward(g, y=a["y0"], x=a["x0"], **averages, eps=it.eps, scratch=a.scratch)]
    kept = statistics(a, it, int(cpu.batch_norm_forward_workspace(g)))
    return [
        cpu.batch_norm_forward(
            g, y=a["y0"], x=a["x0"], **kept, **averages, fraction=it.fraction, eps=it.eps, scratch=a.scratch
        )
    ]


@binds("BatchNorm.recompute")
def batch_norm_replay(a: Args) -> list[Launch]:
    g = channels(a.layer.bottoms[0])
    return [cpu.batch_norm_replay(g, y=a["y0"], x=a["x0"], mean=a["mean"], inv_std=a["inv_std"])]


@binds("BatchNorm.backward", scratch=batch_norm_scratch)
def batch_norm_backward(a: Args) -> list[Launch]:
    it, g = a.layer, channels(a.layer.bottoms[0])
    shared = {"dx": a["dx0"], "dy": a["dy0"], "accumulate": a.adds("dx0"), "scratch": a.scratch}
    if it.global_stats:
        return [cpu.batch_norm_global_backward(g, w1=a["w1"], w2=a["w2"], eps=it.eps, **shared)]
    return [cpu.batch_norm_backward(g, x=a["x0"], mean=a["mean"], inv_std=a["inv_std"], **shared)]


# -- BatchNorm + Scale (+ ReLU) ----------------------------------------------------------------------------------------


def fused_scratch(layer: Any, roles: Collection[str]) -> int:
    own = int(cpu.batch_norm_fused_workspace(channels(layer.bottoms[0])))
    return own if "dy0" in roles else own + statistics_bytes(layer.norm, roles)


@binds("BatchNormScale.forward", "BatchNormScale.recompute", scratch=fused_scratch)
def fused_forward(a: Args) -> list[Launch]:
    it, norm, g = a.layer, a.layer.norm, channels(a.layer.bottoms[0])
    kept = statistics(a, norm, int(cpu.batch_norm_fused_workspace(g)))
    averages = {role: a[role] for role in ("w0", "w1", "w2") if a.has(role)}
    return [
        cpu.batch_norm_fused_forward(
            g, y=a["y0"], x=a["x0"], **kept, factor=a["w3"], bias=a["w4"], relu=it.relu, **averages,
            fraction=norm.fraction, eps=norm.eps, replay=a.kernel.endswith(".recompute"), scratch=a.scratch,
        )
    ]  # fmt: skip


@binds("BatchNormScale.backward", scratch=fused_scratch)
def fused_backward(a: Args) -> list[Launch]:
    it = a.layer
    return [
        cpu.batch_norm_fused_backward(
            channels(it.bottoms[0]), dx=a["dx0"], dfactor=a["dw3"], dbias=a["dw4"], x=a["x0"], dy=a["dy0"],
            mean=a["mean"], inv_std=a["inv_std"], factor=a["w3"], bias=a["w4"], relu=it.relu,
            accumulate_dx=a.adds("dx0"), accumulate_dfactor=a.adds("dw3"), accumulate_dbias=a.adds("dw4"),
            scratch=a.scratch,
        )
    ]  # fmt: skip


# -- PReLU -----------------------------------------------------------------------------------------------------------


def sloped(layer: Any) -> Any:
    x = layer.bottoms[0]
    return cpu.Channels(1, 1, x.count) if layer.params[0].tensor.count == 1 else channels(x)


@binds("PReLU.forward")
def prelu_forward(a: Args) -> list[Launch]:
    return [cpu.prelu_forward(sloped(a.layer), y=a["y0"], x=a["x0"], slope=a["w0"])]


@binds("PReLU.backward", scratch=lambda layer, roles: cpu.prelu_backward_workspace(sloped(layer)))
def prelu_backward(a: Args) -> list[Launch]:
    return [
        cpu.prelu_backward(
            sloped(a.layer), dx=a["dx0"], dslope=a["dw0"], x=a["x0"], dy=a["dy0"], slope=a["w0"],
            accumulate_dx=a.adds("dx0"), accumulate_dslope=a.adds("dw0"), scratch=a.scratch,
        )
    ]  # fmt: skip


# -- LRN -------------------------------------------------------------------------------------------------------------


def lrn_geometry(layer: Any) -> dict[str, Any]:
    n, c, h, w = layer.bottoms[0].shape
    return {"n": n, "h": h, "w": w, "c": c, "size": layer.size, "across": layer.across}


def lrn_scratch(layer: Any, roles: Collection[str]) -> int:
    return int(cpu.lrn_workspace(**lrn_geometry(layer), backward="dx0" in roles))


def lrn_constants(layer: Any) -> dict[str, Any]:
    return {"share": layer.share, "shift": layer.shift, "beta": layer.beta}


@binds("LRN.forward", scratch=lrn_scratch)
def lrn_forward(a: Args) -> list[Launch]:
    settings = {**lrn_geometry(a.layer), **lrn_constants(a.layer)}
    return [cpu.lrn_forward(**settings, y=a["y0"], x=a["x0"], scratch=a.scratch)]


@binds("LRN.backward", scratch=lrn_scratch)
def lrn_backward(a: Args) -> list[Launch]:
    settings = {**lrn_geometry(a.layer), **lrn_constants(a.layer)}
    return [
        cpu.lrn_backward(**settings, dx=a["dx0"], x=a["x0"], dy=a["dy0"], accumulate=a.adds("dx0"), scratch=a.scratch)
    ]


# -- Pooling ---------------------------------------------------------------------------------------------------------


def pool(layer: Any) -> Any:
    down, right = layer.windows
    n, c, h, w = layer.bottoms[0].shape
    return cpu.Pool(
        n=n, c=c, h=h, w=w, out=layer.tops[0].shape[2:], kernel=(down.kernel, right.kernel),
        stride=(down.stride, right.stride), pad=(down.pad, right.pad),
    )  # fmt: skip


@binds("Pooling.forward")
def pooling_forward(a: Args) -> list[Launch]:
    g = pool(a.layer)
    if a.layer.method == "AVE":
        return [cpu.average_pool_forward(g, y=a["y0"], x=a["x0"])]
    return [cpu.max_pool_forward(g, y=a["y0"], x=a["x0"], argmax=a["argmax"])]


@binds("Pooling.backward")
def pooling_backward(a: Args) -> list[Launch]:
    g, adds = pool(a.layer), a.adds("dx0")
    if a.layer.method == "AVE":
        return [cpu.average_pool_backward(g, dx=a["dx0"], dy=a["dy0"], accumulate=adds)]
    return [cpu.max_pool_backward(g, dx=a["dx0"], dy=a["dy0"], argmax=a["argmax"], accumulate=adds)]
