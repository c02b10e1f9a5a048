"""Checks a solver when it is read: known rule and policy, every number in its domain, finite rates.

Each fault is an InputError with the file, the line of the field, and a remedy.
source  Caffe's CHECKs in solver.cpp and sgd_solver.cpp; the others reject values that make a step divide by 0 or give
        NaN
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import SolverFile, resolve_path
from layermem.proto.schema import Message
from layermem.solver.average_precision import VERSIONS
from layermem.solver.rules import HISTORY_COUNTS, NEEDS, POLICIES, WITHOUT_MOMENTUM, learning_rate

NAMES = {"eval_type": ("classification", "detection"), "ap_version": VERSIONS}
AT_LEAST = {
    "iter_size": 1,
    "average_loss": 1,
    "display": 0,
    "snapshot": 0,
    "test_interval": 0,
    "max_iter": 0,
    "warmup_iter": 0,
    "patience": 0,
}
NUMBERS = (
    "base_lr",
    "warmup_start_lr",
    "gamma",
    "power",
    "momentum",
    "momentum2",
    "rms_decay",
    "delta",
    "weight_decay",
    "clip_gradients",
)
NOT_NEGATIVE = ("base_lr", "warmup_start_lr", "weight_decay")
DECAYS = {  # fields in [0, 1), and the types that use them
    "momentum": ("SGD", "Nesterov", "AdaDelta", "Adam", "AdamW"),
    "momentum2": ("Adam", "AdamW"),
    "rms_decay": ("RMSProp",),
}
WITH_DELTA = ("AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW")
LARGEST_RATE = float(np.finfo(np.float32).max)  # update kernels take the rate in float32


def check_solver(solver: SolverFile) -> None:
    """Raise InputError for any field of the solver that cannot be run."""
    p = solver.message
    _check_rule(solver)
    for field, least in AT_LEAST.items():
        value = getattr(p, field)
        if value < least:
            raise solver.error(field, f"has {field} {value}; use {least} or more")
    for field, known in NAMES.items():
        if getattr(p, field) not in known:
            raise solver.error(field, f"has {field} '{getattr(p, field)}'; use one of {', '.join(known)}")
    for field in NUMBERS:
        value = getattr(p, field)
        if not math.isfinite(value):
            raise solver.error(field, f"has {field} {value:g}; use a finite number of at most {LARGEST_RATE:.3g}")
        if field in NOT_NEGATIVE and value < 0:
            raise solver.error(field, f"has {field} {value:g}; use 0 or more")
    for field, types in DECAYS.items():
        value = getattr(p, field)
        if p.type in types and not 0 <= value < 1:
            raise solver.error(field, f"has {field} {value:g}; use 0 or more, and less than 1")
    if p.type in WITH_DELTA and p.delta <= 0:
        raise solver.error("delta", f"has delta {p.delta:g}; use a small positive number such as 1e-8")
    _check_policy(solver)
    check_rates(solver, p.max_iter)


def check_rates(solver: SolverFile, end: int) -> None:
    """Raise InputError if the rate of an iteration before `end` is above the largest float32.

    Rates rise or fall monotonically during the warm-up and after it, so only the first and the last ones are checked.
    """
    last = max(0, end - 1)
    for iteration in sorted({0, min(solver.message.warmup_iter, last), last}):
        rate = learning_rate(solver.message, iteration)
        if not rate <= LARGEST_RATE:
            field = "gamma" if solver.message.HasField("gamma") else "base_lr"
            raise solver.error(field, f"gives iteration {iteration} a learning rate of {rate:.3g}; lower {field}")


def last_iteration(solver: SolverFile, iterations: int | None) -> int:
    """The iteration at which a run ends: `iterations`, or else max_iter of the solver."""
    if iterations is not None:
        if iterations < 0:
            raise InputError(f"iterations {iterations} is negative; give 0 or more")
        return iterations
    if not solver.message.HasField("max_iter"):
        raise solver.error("max_iter", "has no max_iter; set it to the number of iterations to train")
    return int(solver.message.max_iter)


def named_weights(solver: SolverFile) -> list[Path]:
    """The weight files in the solver; one field may list several, separated by commas."""
    paths = []
    for index, names in enumerate(solver.message.weights):
        for name in names.split(","):
            try:
                paths.append(resolve_path(name.strip(), solver.path))
            except InputError as error:
                raise solver.error("weights", f"{error.what}; correct the path", index) from None
    return paths


def ignored(param: Message, tests: Sequence[Net]) -> list[str]:
    """Notes about fields that a run ignores."""
    notes = [f"{field} is ignored" for field in ("debug_info", "snapshot_diff") if getattr(param, field)]
    if param.test_interval and not tests:
        notes.insert(0, "test_interval has no effect without test_iter, the number of batches of a test")
    return notes


def _check_rule(solver: SolverFile) -> None:
    p = solver.message
    if p.type not in HISTORY_COUNTS:
        raise solver.error("type", f"has the unknown type '{p.type}' (choose from {', '.join(HISTORY_COUNTS)})")
    if p.regularization_type not in ("L1", "L2"):
        raise solver.error("regularization_type", f"has regularization_type '{p.regularization_type}'; use L1 or L2")
    if p.type == "AdamW" and p.regularization_type != "L2":
        raise solver.error(
            "regularization_type", "has regularization_type 'L1' with type 'AdamW'; use L2, or type 'Adam'"
        )
    if p.type in WITHOUT_MOMENTUM and p.momentum:
        raise solver.error("momentum", f"has a momentum, which {p.type} does not use; remove it")


def _check_policy(solver: SolverFile) -> None:
    p = solver.message
    if p.lr_policy not in POLICIES:
        what = f"has the unknown lr_policy '{p.lr_policy}'" if p.lr_policy else "has no lr_policy"
        raise solver.error("lr_policy", f"{what} (choose from {', '.join(POLICIES)})")
    for field in ("base_lr", *NEEDS.get(p.lr_policy, ())):
        if not _states(p, field):
            raise solver.error("lr_policy", f"has lr_policy '{p.lr_policy}' without '{field}'; add it")
    if p.lr_policy == "step" and p.stepsize < 1:
        raise solver.error("stepsize", f"has stepsize {p.stepsize}; use 1 or more")
    if p.lr_policy in ("poly", "cosine") and p.max_iter < 1:
        raise solver.error("max_iter", f"has lr_policy '{p.lr_policy}' with max_iter {p.max_iter}; use 1 or more")
    if p.lr_policy == "poly" and p.power < 0:
        raise solver.error("power", f"has lr_policy 'poly' with power {p.power:g}; use 0 or more")
    if p.lr_policy != "sigmoid" and p.gamma < 0:
        raise solver.error("gamma", f"has lr_policy '{p.lr_policy}' with gamma {p.gamma:g}; use 0 or more")
    for index, value in enumerate(p.stepvalue):
        if value < 0:
            raise solver.error("stepvalue", f"has stepvalue {value}; use 0 or more", index)
        if index and value < p.stepvalue[index - 1]:
            raise solver.error("stepvalue", "has stepvalues out of order; sort them", index)


def _states(p: Message, field: str) -> bool:
    return bool(p.stepvalue) if field == "stepvalue" else bool(p.HasField(field))
