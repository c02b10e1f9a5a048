"""Updates of parameters, and the norm of all gradients that clipping compares."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, sqrt
from typing import TypedDict

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.backends.reference.update import updates_with_this_one
from layermem.ops import GradientNorm, Update


class RuleSettings(TypedDict):
    """Addresses that an update changes, and the constants of its rule."""

    w: int
    h0: int
    h1: int
    decay: float
    l1: bool
    momentum: float
    momentum2: float
    delta: float


def rule_settings(op: Update, call: CpuCall) -> RuleSettings:
    context = call.context
    return {
        "w": call["w0"],
        "h0": call["h0"],
        "h1": call["h1"],
        "decay": 0.0 if op.decoupled else context["weight_decay"] * op.decay_mult,
        "l1": context["regularization"] == "L1",
        "momentum": context["rms_decay"] if op.rule == "RMSProp" else context["momentum"],
        "momentum2": context["momentum2"],
        "delta": context["delta"],
    }


class UpdateLaunch:
    """The native launch of an update, called with the rate of this iteration, a factor of the gradient, which combines
    loss scale, clipping and iter_size, and the part of the parameter that decoupled decay takes."""

    def __init__(self, op: Update, call: CpuCall, launch: Callable[..., None]):
        self.op, self.launch, self.context = op, launch, call.context
        self.norm = call.arrays.get("norm")

    def __call__(self) -> None:
        context, scale = self.context, self.context["loss_scale"] if self.op.scaled else 1.0
        norm = 0.0 if self.norm is None else float(self.norm) / scale
        if self.op.scaled and not isfinite(norm):
            return
        gain = 1.0 / context["iter_size"]
        if 0 <= context["clip"] < norm:
            gain *= context["clip"] / norm
        gain /= scale
        rate = context["rate"] * self.op.lr_mult
        shrink = rate * (context["weight_decay"] * self.op.decay_mult) if self.op.decoupled else 0.0
        if self.op.rule in ("Adam", "AdamW"):
            t = updates_with_this_one(context)
            rate *= sqrt(1 - context["momentum2"] ** t) / (1 - context["momentum"] ** t)
        self.launch(rate, gain, shrink)


@kernel(Update, "update")
def update(op: Update, call: CpuCall) -> list[Launch]:
    settings = rule_settings(op, call)
    settings["w"] += op.first_element * call.arrays["w0"].itemsize
    bound = launch("update", call.count("dw0"), rule=op.rule, dw=call["dw0"], **settings)
    return [UpdateLaunch(op, call, bound)]


@kernel(GradientNorm, "forward")
def gradient_norm(op: GradientNorm, call: CpuCall) -> list[Launch]:
    xs = call.numbered("x")
    counts = [call.count(f"x{i}") for i in range(len(xs))]
    return [launch("sum_of_squares", counts, out=call["y0"], xs=xs, root=True)]
