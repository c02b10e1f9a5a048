"""Caffe's learning-rate policies and update rules.

    rate       fixed      base                              step       base gamma^floor(iter / stepsize)
               exp        base gamma^iter                   inv        base (1 + gamma iter)^-power
               multistep  base gamma^(stepvalues passed)    poly       base (1 - iter / max_iter)^power
               sigmoid    base / (1 + exp(-gamma (iter - stepsize)))
    update     kernels "<type>.update" of the devices, over a parameter w, its gradient and its histories
source  Caffe sgd_solver.cpp, GetLearningRate
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from layermem.errors import InputError
from layermem.graph.train import Rule

HISTORIES = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2}

POLICIES: dict[str, Callable[[Any, int, int], float]] = {
    "fixed": lambda p, i, passed: p.base_lr,
    "step": lambda p, i, passed: p.base_lr * p.gamma ** (i // p.stepsize),
    "exp": lambda p, i, passed: p.base_lr * p.gamma**i,
    "inv": lambda p, i, passed: p.base_lr * (1 + p.gamma * i) ** -p.power,
    "multistep": lambda p, i, passed: p.base_lr * p.gamma**passed,
    "poly": lambda p, i, passed: p.base_lr * (1 - i / p.max_iter) ** p.power,
    "sigmoid": lambda p, i, passed: p.base_lr / (1 + math.exp(-p.gamma * (i - p.stepsize))),
}
NEEDS = {
    "step": ("gamma", "stepsize"), "exp": ("gamma",), "inv": ("gamma", "power"), "multistep": ("gamma",),
    "poly": ("power", "max_iter"), "sigmoid": ("gamma", "stepsize"),
}  # fmt: skip


def check_policy(p: Any) -> None:
    """InputError unless the solver names a policy and all that it needs."""
    if p.lr_policy not in POLICIES:
        raise InputError(f"has lr_policy '{p.lr_policy}'; choose one of: {' '.join(POLICIES)}")
    for field in ("base_lr", *NEEDS.get(p.lr_policy, ())):
        if not p.HasField(field):
            raise InputError(f"needs '{field}:' for lr_policy '{p.lr_policy}'")
    if p.lr_policy == "step" and p.stepsize < 1:
        raise InputError("needs a stepsize of at least 1")


def rate(p: Any, iteration: int) -> float:
    """The learning rate of `iteration` under solver parameters `p`."""
    passed = sum(1 for value in p.stepvalue if iteration >= value)
    return POLICIES[p.lr_policy](p, iteration, passed)


def rule_of(p: Any) -> Rule:
    if p.type not in HISTORIES:
        raise InputError(f"has type '{p.type}'; choose one of: {' '.join(HISTORIES)}")
    if p.regularization_type not in ("L1", "L2"):
        raise InputError(f"has regularization_type '{p.regularization_type}'; choose L1 or L2")
    return Rule(p.type, HISTORIES[p.type])


def settings(p: Any) -> dict[str, Any]:
    """What update kernels read from the context and no iteration changes."""
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
