"""Ops element by element: Dropout, Eltwise, fills, updates and the norm of gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds

MOST_ARRAYS = 256  # that one op combines


@binds("Fill.zero")
def zero(a: Args) -> list[Launch]:
    return [cpu.map("fill", a.count("y0"), out=a["y0"], p=0.0)]


@binds("Fill.seed")
def seed(a: Args) -> list[Launch]:
    return [cpu.map("fill", a.count("y0"), out=a["y0"], p=float(a.layer), accumulate=a.adds("y0"))]


@binds("Dropout.forward")
def dropout_forward(a: Args) -> list[Launch]:
    return _dropout(a, "y0", "x0")


@binds("Dropout.backward")
def dropout_backward(a: Args) -> list[Launch]:
    return _dropout(a, "dx0", "dy0")


def _dropout(a: Args, out: str, x: str) -> list[Launch]:
    it, context = a.layer, a.context
    if it.identity:
        return copy_unless_same(a, out, x)

    @lru_cache(maxsize=1)
    def launch(seed: int) -> Callable[[int], None]:
        return cpu.dropout(
            a.count(out), out=a[out], x=a[x], ratio=it.threshold / 2**32, seed=seed, stream=it.stream,
            accumulate=a.adds(out),
        )  # fmt: skip

    return [lambda: launch(context["seed"])(context["step"])]  # a run learns its seed after its ops were bound


def copy_unless_same(a: Args, out: str, x: str) -> list[Launch]:
    """A view costs nothing where both lie on the same bytes."""
    if a[out] == a[x] and not a.adds(out):
        return []
    return [cpu.map("scale", a.count(out), out=a[out], a=a[x], p=1.0, accumulate=a.adds(out))]


@binds("EltwiseReLU.forward")
def eltwise_relu_forward(a: Args) -> list[Launch] | None:
    it = a.layer.inner
    if len(it.bottoms) > MOST_ARRAYS:
        return None
    xs, coefficients = [a[f"x{i}"] for i in range(len(it.bottoms))], list(it.coeffs)
    return [cpu.eltwise_sum(a.count("y0"), y=a["y0"], xs=xs, coefficients=coefficients, relu=True, mask=a["mask"])]


@binds("EltwiseReLU.backward")
def eltwise_relu_backward(a: Args) -> list[Launch] | None:
    it = a.layer.inner
    if len(it.bottoms) > MOST_ARRAYS:
        return None
    dxs, adds = ([of(f"dx{i}") for i in range(len(it.bottoms))] for of in (a.__getitem__, a.adds))
    return [
        cpu.eltwise_sum_backward(
            a.count("dy0"), dxs=dxs, dy=a["dy0"], coefficients=list(it.coeffs), accumulate=adds, mask=a["mask"],
            y=a["y0"],
        )
    ]  # fmt: skip


@binds("Eltwise.forward")
def eltwise_forward(a: Args) -> list[Launch] | None:
    it = a.layer
    count, xs = a.count("y0"), [a[f"x{i}"] for i in range(len(it.bottoms))]
    if len(xs) > MOST_ARRAYS:
        return None
    if it.operation == "SUM":
        return [cpu.eltwise_sum(count, y=a["y0"], xs=xs, coefficients=list(it.coeffs))]
    if it.operation == "PROD":
        return [cpu.eltwise_product(count, y=a["y0"], xs=xs)]
    return [cpu.eltwise_max(count, y=a["y0"], xs=xs, winner=a["winner"])]


@binds("Eltwise.backward")
def eltwise_backward(a: Args) -> list[Launch] | None:
    it = a.layer
    bottoms = range(len(it.bottoms))
    dxs, adds = [a[f"dx{i}"] for i in bottoms], [a.adds(f"dx{i}") for i in bottoms]
    count = a.count("dy0")
    if len(dxs) > MOST_ARRAYS:
        return None
    if it.operation == "SUM":
        coefficients = list(it.coeffs)
        return [cpu.eltwise_sum_backward(count, dxs=dxs, dy=a["dy0"], coefficients=coefficients, accumulate=adds)]
    if it.operation == "PROD":
        xs = [a[f"x{i}"] for i in bottoms]
        return [cpu.eltwise_product_backward(count, dxs=dxs, xs=xs, dy=a["dy0"], accumulate=adds)]
    return [cpu.eltwise_max_backward(count, dxs=dxs, dy=a["dy0"], winner=a["winner"], accumulate=adds)]


# -- updates -----------------------------------------------------------------------------------------------------------


@binds(*(f"{rule}.update" for rule in ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")))
def update(a: Args) -> list[Launch]:
    rule = a.kernel.split(".")[0]
    return [Updating(a, a.layer, rule, cpu.update(rule, a.count("w0"), dw=a["dw0"], **settings(a, a.layer, rule)))]


def settings(a: Args, parameter: Any, rule: str) -> dict[str, Any]:
    """What changes, and what does not change from step to step."""
    c = a.context
    return {
        "w": a["w0"], "h0": a["h0"], "h1": a["h1"], "decay": c["weight_decay"] * parameter.decay_mult,
        "l1": c["regularization"] == "L1", "momentum": c["rms_decay"] if rule == "RMSProp" else c["momentum"],
        "momentum2": c["momentum2"], "delta": c["delta"],
    }  # fmt: skip


class Updating:
    """A launch that changes `parameter`: with the rate of the moment; clipping and iter_size are a factor of the
    gradient."""

    def __init__(self, a: Args, parameter: Any, rule: str, launch: Callable[[float, float], None]):
        self.parameter, self.rule, self.launch = parameter, rule, launch
        self.context = a.context
        self.norm = a.arrays.get("norm")

    def __call__(self) -> None:
        c = self.context
        gain = 1.0 / c["iter_size"]
        if self.norm is not None and float(self.norm) > c["clip"]:
            gain *= c["clip"] / float(self.norm)
        rate = c["rate"] * self.parameter.lr_mult
        if self.rule == "Adam":
            t = c["iteration"] + 1
            rate *= sqrt(1 - c["momentum2"] ** t) / (1 - c["momentum"] ** t)
        self.launch(rate, gain)


@binds("Clip.norm")
def norm(a: Args) -> list[Launch]:
    """Of all gradients, x0 x1 .. in the order of the net."""
    xs = [f"x{i}" for i in range(sum(role.startswith("x") for role in a.arrays))]
    return [cpu.sum_of_squares([a.count(x) for x in xs], out=a["y0"], xs=[a[x] for x in xs], root=True)]
