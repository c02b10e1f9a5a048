"""Caffe's learning-rate policies and update rules.

    rate       fixed      base                              step       base gamma^floor(iter / stepsize)
               exp        base gamma^iter                   inv        base (1 + gamma iter)^-power
               multistep  base gamma^(stepvalues passed)    poly       base (1 - iter / max_iter)^power
               sigmoid    base / (1 + exp(-gamma (iter - stepsize)))
               cosine     base (1 + cos(pi iter / max_iter)) / 2, and 0 after max_iter
    warm-up    start + (base - start) iter / warmup_iter before iteration warmup_iter, whatever the policy is
    update     records of ops.Update, over a parameter w, its gradient and its optimizer state
source  Caffe sgd_solver.cpp, GetLearningRate; warm-up as in Intel Caffe's; cosine: Loshchilov and Hutter, SGDR (2017)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from layermem.backends.registry import StepContext
from layermem.graph.train import UpdateRule
from layermem.proto.schema import Message

HISTORY_COUNTS = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2, "AdamW": 2}
SQUARE_HISTORY = {  # those that are never negative
    "AdaGrad": (0,),
    "RMSProp": (0,),
    "AdaDelta": (0, 1),
    "Adam": (1,),
    "AdamW": (1,),
}
WITHOUT_MOMENTUM = ("AdaGrad", "RMSProp")

POLICIES: dict[str, Callable[[Message, int, int], float]] = {
    "fixed": lambda p, i, drops: p.base_lr,
    "step": lambda p, i, drops: p.base_lr * _power(p.gamma, drops),
    "exp": lambda p, i, drops: p.base_lr * _power(p.gamma, i),
    "inv": lambda p, i, drops: p.base_lr * _power(1 + p.gamma * i, -p.power),
    "multistep": lambda p, i, drops: p.base_lr * _power(p.gamma, drops),
    "poly": lambda p, i, drops: p.base_lr * _power(max(0.0, 1 - i / p.max_iter), p.power),
    "sigmoid": lambda p, i, drops: p.base_lr * _logistic(p.gamma * (i - p.stepsize)),
    "cosine": lambda p, i, drops: p.base_lr * (1 + math.cos(math.pi * min(1, i / p.max_iter))) / 2,
}
NEEDS = {  # fields without default that a policy needs besides base_lr
    "step": ("stepsize",),
    "multistep": ("stepvalue",),
    "poly": ("max_iter",),
    "sigmoid": ("stepsize",),
    "cosine": ("max_iter",),
}
USES = {  # fields that are 0 if the solver leaves them out
    "step": ("gamma",),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "multistep": ("gamma",),
    "poly": ("power",),
    "sigmoid": ("gamma",),
}


def learning_rate(p: Message, iteration: int) -> float:
    """The learning rate of `iteration` under solver parameters `p`."""
    if iteration < p.warmup_iter:
        return float(p.warmup_start_lr + (p.base_lr - p.warmup_start_lr) * iteration / p.warmup_iter)
    return POLICIES[p.lr_policy](p, iteration, rate_drops(p, iteration))


def rate_drops(p: Message, iteration: int) -> int:
    """The number of drops of the rate before `iteration` by step or multistep; Caffe's current_step."""
    if p.lr_policy == "step":
        return iteration // int(p.stepsize)
    return _passed(p.stepvalue, iteration) if p.lr_policy == "multistep" else 0


def rate_drop(p: Message, iteration: int) -> int:
    """The number of drops by multistep if the last of them is in this iteration; 0 otherwise."""
    drops = rate_drops(p, iteration) if p.lr_policy == "multistep" else 0
    return drops if iteration == 0 or drops > rate_drops(p, iteration - 1) else 0


def _passed(stepvalues: Sequence[int], iteration: int) -> int:
    """Number of drops by multistep until `iteration`: one at each value, but at most one per iteration, so that equal
    values follow each other."""
    drops, last = 0, -1
    for value in stepvalues:
        last = max(int(value), last + 1)
        if last > iteration:
            break
        drops += 1
    return drops


def defaulted(p: Message) -> list[str]:
    """A note for each number of the policy that the solver leaves out."""
    return [
        f"lr_policy '{p.lr_policy}' without {field}: {field} is 0, as in Caffe"
        for field in USES.get(p.lr_policy, ())
        if not p.HasField(field)
    ]


def rule_of(p: Message) -> UpdateRule:
    return UpdateRule(p.type, HISTORY_COUNTS[p.type])


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


def _power(base: float, exponent: float) -> float:
    """`base`, which is not negative, to the power of `exponent`; infinite if that overflows."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def _logistic(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
