"""Activations: a function of each element, its slope times dy on the way back, or one bit that says which slope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds

Constants = Callable[[Any], dict[str, float]]  # layer -> p, q, r of cpu.map


def bind_map(kind: str, function: str, slope_of: str, constants: Constants = lambda it: {}) -> None:
    """Bind `kind` to cpu.map's `function` and its slope, which is found from `slope_of`: x0 or y0."""

    @binds(f"{kind}.forward")
    def forward(a: Args) -> list[Launch]:
        return [cpu.map(function, a.count("x0"), out=a["y0"], a=a["x0"], **constants(a.layer))]

    @binds(f"{kind}.backward")
    def backward(a: Args) -> list[Launch]:
        slope, adds = f"{function}_slope", a.adds("dx0")
        given = constants(a.layer)
        return [cpu.map(slope, a.count("dx0"), out=a["dx0"], a=a["dy0"], b=a[slope_of], accumulate=adds, **given)]


bind_map("Sigmoid", "sigmoid", "y0")
bind_map("TanH", "tanh", "y0")
bind_map("ELU", "elu", "x0", lambda it: {"p": it.alpha})
bind_map("AbsVal", "absolute", "x0")
bind_map("Exp", "exponential", "y0", lambda it: {"p": it.inner, "q": it.outer})
bind_map("Log", "logarithm", "x0", lambda it: {"p": it.scale, "q": it.shift, "r": it.factor})
bind_map("BNLL", "softplus", "x0")
bind_map("Swish", "swish", "x0", lambda it: {"p": it.beta})


@binds("Threshold.forward")
def threshold(a: Args) -> list[Launch]:
    return [cpu.map("threshold", a.count("x0"), out=a["y0"], a=a["x0"], p=a.layer.threshold)]


@binds("Power.forward")
def power(a: Args) -> list[Launch]:
    it = a.layer
    return [cpu.map("power", a.count("x0"), out=a["y0"], a=a["x0"], p=it.power, q=it.scale, r=it.shift)]


@binds("Power.backward")
def power_backward(a: Args) -> list[Launch]:
    it, count, adds = a.layer, a.count("dx0"), a.adds("dx0")
    if not a.has("x0"):  # a straight line
        return [cpu.map("scale", count, out=a["dx0"], a=a["dy0"], p=it.power * it.scale, accumulate=adds)]
    given = {"p": it.power, "q": it.scale, "r": it.shift}
    return [cpu.map("power_slope", count, out=a["dx0"], a=a["dy0"], b=a["x0"], accumulate=adds, **given)]


@binds("ReLU.forward")
def relu_forward(a: Args) -> list[Launch]:
    slope = a.layer.negative_slope
    return [cpu.relu_forward(a.count("x0"), y=a["y0"], x=a["x0"], slope=slope, mask=a["mask"])]


@binds("ReLU.backward")
def relu_backward(a: Args) -> list[Launch]:
    slope, count, adds = a.layer.negative_slope, a.count("dx0"), a.adds("dx0")
    if a.has("mask"):
        return [cpu.relu_backward(count, dx=a["dx0"], dy=a["dy0"], mask=a["mask"], slope=slope, accumulate=adds)]
    sign = a["y0"] or a["x0"]
    return [cpu.map("relu_slope", count, out=a["dx0"], a=a["dy0"], b=sign, p=slope, accumulate=adds)]


@binds("Clip.forward")
def clip_forward(a: Args) -> list[Launch]:
    it, count = a.layer, a.count("x0")
    if a.has("mask"):
        return [cpu.clip_forward(count, y=a["y0"], x=a["x0"], mask=a["mask"], lowest=it.min, highest=it.max)]
    return [cpu.map("clip", count, out=a["y0"], a=a["x0"], p=it.min, q=it.max)]


@binds("Clip.backward")
def clip_backward(a: Args) -> list[Launch]:
    it, count, adds = a.layer, a.count("dx0"), a.adds("dx0")
    if a.has("mask"):
        return [cpu.relu_backward(count, dx=a["dx0"], dy=a["dy0"], mask=a["mask"], accumulate=adds)]
    return [cpu.map("clip_slope", count, out=a["dx0"], a=a["dy0"], b=a["x0"], p=it.min, q=it.max, accumulate=adds)]
