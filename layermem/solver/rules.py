"""Caffe's learning-rate policies and update rules.

    rate       fixed      base                              step       base gamma^floor(iter / stepsize)
               exp        base gamma^iter                   inv        base (1 + gamma iter)^-power
               multistep  base gamma^(stepvalues passed)    poly       base (1 - iter / max_iter)^power
               sigmoid    base / (1 + exp(-gamma (iter - stepsize)))
    update     records of ops.Update, over a parameter w, its gradient and its histories
source  Caffe sgd_solver.cpp, GetLearningRate
"""

from __future__ import annotations

import math
from collections.abc import Callable

from layermem.backends.registry import StepContext
from layermem.graph.train import Rule
from layermem.proto.read import SolverFile
from layermem.proto.schema import Message

HISTORIES = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2}
WITHOUT_MOMENTUM = ("AdaGrad", "RMSProp")

POLICIES: dict[str, Callable[[Message, int, int], float]] = {
    "fixed": lambda p, i, drops: p.base_lr,
    "step": lambda p, i, drops: p.base_lr * p.gamma**drops,
    "exp": lambda p, i, drops: p.base_lr * p.gamma**i,
    "inv": lambda p, i, drops: p.base_lr * (1 + p.gamma * i) ** -p.power,
    "multistep": lambda p, i, drops: p.base_lr * p.gamma**drops,
    "poly": lambda p, i, drops: p.base_lr * max(0.0, 1 - i / p.max_iter) ** p.power,
    "sigmoid": lambda p, i, drops: p.base_lr * _logistic(p.gamma * (i - p.stepsize)),
}
NEEDS = {
    "step": ("gamma", "stepsize"), "exp": ("gamma",), "inv": ("gamma", "power"), "multistep": ("gamma", "stepvalue"),
    "poly": ("power", "max_iter"), "sigmoid": ("gamma", "stepsize"),
}  # fmt: skip


def learning_rate(p: Message, iteration: int) -> float:
    """The learning rate of `iteration` under solver parameters `p`."""
    return POLICIES[p.lr_policy](p, iteration, rate_drops(p, iteration))


def rate_drops(p: Message, iteration: int) -> int:
    """The number of drops of the rate before `iteration` by step or multistep; Caffe's current_step."""
    if p.lr_policy == "step":
        return iteration // int(p.stepsize)
    return sum(1 for value in p.stepvalue if iteration >= value) if p.lr_policy == "multistep" else 0


def rule_of(p: Message) -> Rule:
    return Rule(p.type, HISTORIES[p.type])


def settings(p: Message) -> StepContext:
    """The constants that update kernels read from the context."""
    return {
        "momentum": p.momentum,
        "momentum2": p.momentum2,
        "rms_decay": p.rms_decay,
        "delta": p.delta,
        "weight_decay": p.weight_decay,
        "regularization": p.regularization_type,
        "clip": p.clip_gradients,
        "iter_size": p.iter_size,
    }


def check_rules(solver: SolverFile) -> None:
    """InputError unless the solver has a known rule and policy, with all their fields."""
    p = solver.message
    if p.type not in HISTORIES:
        raise solver.error("type", f"has the unknown type '{p.type}' (choose from {', '.join(HISTORIES)})")
    if p.regularization_type not in ("L1", "L2"):
        raise solver.error("regularization_type", f"has regularization_type '{p.regularization_type}'; use L1 or L2")
    if p.type in WITHOUT_MOMENTUM and p.momentum:
        raise solver.error("momentum", f"has a momentum, which {p.type} does not use; remove it")
    if p.type == "RMSProp" and not 0 <= p.rms_decay < 1:
        raise solver.error("rms_decay", f"has rms_decay {p.rms_decay:g}; use 0 or more, and less than 1")
    _check_policy(solver)


def _check_policy(solver: SolverFile) -> None:
    p = solver.message
    if p.lr_policy not in POLICIES:
        what = f"has the unknown lr_policy '{p.lr_policy}'" if p.lr_policy else "has no lr_policy"
        raise solver.error("lr_policy", f"{what} (choose from {', '.join(POLICIES)})")
    for field in ("base_lr", *NEEDS.get(p.lr_policy, ())):
        if not (len(p.stepvalue) if field == "stepvalue" else p.HasField(field)):
            raise solver.error("lr_policy", f"has lr_policy '{p.lr_policy}' without '{field}'; add it")
    if p.lr_policy == "step" and p.stepsize < 1:
        raise solver.error("stepsize", f"has stepsize {p.stepsize}; use 1 or more")
    if list(p.stepvalue) != sorted(p.stepvalue):
        raise solver.error("stepvalue", "has stepvalues out of order; sort them")


def _logistic(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
