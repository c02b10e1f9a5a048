"""Update rules: w changes by its gradient and its optimizer state.

g = dw without its loss scale, clipped, divided by iter_size, plus decay (L2: w, L1: sign w) unless it is decoupled
r = rate lr_mult;  m = momentum
    SGD       h <- m h + r g                                   w <- w - h
    Nesterov  v <- m h + r g                                   w <- w - ((1 + m) v - m h);   h <- v
    AdaGrad   h <- h + g^2                                     w <- w - r g / (sqrt h + delta)
    RMSProp   h <- d h + (1 - d) g^2                           w <- w - r g / (sqrt h + delta)
    AdaDelta  h0 <- m h0 + (1 - m) g^2;  u = g sqrt((h1 + delta) / (h0 + delta))
              h1 <- m h1 + (1 - m) u^2                         w <- w - r u
    Adam      h0 <- m h0 + (1 - m) g;  h1 <- m2 h1 + (1 - m2) g^2
                                                               w <- w - r c h0 / (sqrt h1 + delta)
              c = sqrt(1 - m2^t) / (1 - m^t),  t = updates with this one
    AdamW     w <- w - r decay w, and then as Adam
source  Caffe src/caffe/solvers; AdamW: Loshchilov and Hutter, Decoupled Weight Decay Regularization (2019)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.backends.registry import StepContext
from layermem.ops import ACCUMULATE, GradientNorm, Update


def effective_gradient(op: Update, call: ReferenceCall) -> Array:
    """A new array: the gradient for the rules, after clip, iter_size and decay in the order of Caffe's solver."""
    g, scale, clip = np.array(call["dw0"]), call.context["loss_scale"] if op.scaled else 1.0, call.context["clip"]
    if scale != 1:
        g *= g.dtype.type(1 / scale)
    if "norm" in call and 0 <= clip < float(call["norm"]) / scale:
        g *= g.dtype.type(clip / (call["norm"] / g.dtype.type(scale)))
    if call.context["iter_size"] > 1:
        g *= g.dtype.type(1 / call.context["iter_size"])
    decay = g.dtype.type(call.context["weight_decay"] * op.decay_mult)
    if decay and not op.decoupled:
        g += decay * (call["w0"] if call.context["regularization"] == "L2" else np.sign(call["w0"]))
    return g


def updates_with_this_one(context: StepContext) -> int:
    """The number of updates for Adam, without the iterations that were skipped."""
    return context["iteration"] + 1 - context.get("skipped", 0)


Rate = np.floating[Any]  # a number of the gradient's type
UpdateFunction = Callable[[ReferenceCall, Array, Rate], None]
RULES: dict[str, UpdateFunction] = {}


def rule(name: str) -> Callable[[UpdateFunction], UpdateFunction]:
    """Register a rule: `step(call, g, local_rate)` changes w and its optimizer state."""

    def register(step: UpdateFunction) -> UpdateFunction:
        RULES[name] = step
        return step

    return register


@kernel(Update, "update")
def update(op: Update, call: ReferenceCall) -> None:
    if op.rule == ACCUMULATE:
        call["w0"][...] += call["dw0"]
        return
    if op.scaled and not np.isfinite(call["norm"]):
        return
    if call["w0"].shape != call["dw0"].shape:  # dw0 holds a rank's own rows
        rows = slice(op.first_row, op.first_row + len(call["dw0"]))
        own = {**call.arrays, "w0": np.atleast_1d(call["w0"])[rows]}
        call = ReferenceCall(own, call.context, op=call.op, layer=call.layer)
    g = effective_gradient(op, call)
    rate = call.context["rate"] * op.lr_mult
    if op.decoupled:
        call["w0"][...] -= g.dtype.type(rate * (call.context["weight_decay"] * op.decay_mult)) * call["w0"]
    RULES[op.rule](call, g, g.dtype.type(rate))


@rule("SGD")
def sgd(call: ReferenceCall, g: Array, r: Rate) -> None:
    call["h0"][...] = call["h0"] * g.dtype.type(call.context["momentum"]) + r * g
    call["w0"][...] -= call["h0"]


@rule("Nesterov")
def nesterov(call: ReferenceCall, g: Array, r: Rate) -> None:
    m = g.dtype.type(call.context["momentum"])
    v = call["h0"] * m + r * g
    call["w0"][...] -= (1 + m) * v - m * call["h0"]
    call["h0"][...] = v


@rule("AdaGrad")
def adagrad(call: ReferenceCall, g: Array, r: Rate) -> None:
    call["h0"][...] += g * g
    call["w0"][...] -= r * (g / (np.sqrt(call["h0"]) + g.dtype.type(call.context["delta"])))


@rule("RMSProp")
def rmsprop(call: ReferenceCall, g: Array, r: Rate) -> None:
    d = g.dtype.type(call.context["rms_decay"])
    call["h0"][...] = d * call["h0"] + (1 - d) * (g * g)
    call["w0"][...] -= r * (g / (np.sqrt(call["h0"]) + g.dtype.type(call.context["delta"])))


@rule("AdaDelta")
def adadelta(call: ReferenceCall, g: Array, r: Rate) -> None:
    m, delta = g.dtype.type(call.context["momentum"]), g.dtype.type(call.context["delta"])
    call["h0"][...] = m * call["h0"] + (1 - m) * (g * g)
    u = g * np.sqrt((call["h1"] + delta) / (call["h0"] + delta))
    call["h1"][...] = m * call["h1"] + (1 - m) * (u * u)
    call["w0"][...] -= r * u


@rule("AdamW")
@rule("Adam")
def adam(call: ReferenceCall, g: Array, r: Rate) -> None:
    m, m2 = g.dtype.type(call.context["momentum"]), g.dtype.type(call.context["momentum2"])
    t = updates_with_this_one(call.context)
    correction = g.dtype.type(np.sqrt(1 - call.context["momentum2"] ** t) / (1 - call.context["momentum"] ** t))
    call["h0"][...] = m * call["h0"] + (1 - m) * g
    call["h1"][...] = m2 * call["h1"] + (1 - m2) * (g * g)
    call["w0"][...] -= r * correction * (call["h0"] / (np.sqrt(call["h1"]) + g.dtype.type(call.context["delta"])))


@kernel(GradientNorm, "forward")
def gradient_norm(op: GradientNorm, call: ReferenceCall) -> None:
    """Compute the L2 norm over all gradients, summed parameter by parameter in the order of the net."""
    squares = sum(float(np.sum(np.square(x, dtype=np.float64))) for x in call.all("x"))
    call["y0"][...] = np.sqrt(squares)
