"""The values that change from step to step, in the struct of cuda/step_scalars.cuh.

All other arguments of a launch are known when it first runs.
"""

from __future__ import annotations

from math import sqrt

from layermem.backends.cuda.support.struct_layout import layout
from layermem.backends.registry import StepContext

MODULE = NAME = "step_scalars"
ALL_BATCHES = -1
WORD = 0xFFFFFFFF


def pack_step_scalars(context: StepContext) -> bytes:
    """Pack the struct of one step, with 0 for values that the context lacks and that no kernel of the step reads."""
    seed, step = context.get("seed", 0), context.get("step", 0)
    data, _ = layout(MODULE, "StepScalars").pack(
        {
            "rate": context.get("rate", 0.0),
            "correction": adam_correction(context),
            "averaged": context.get("averaged", ALL_BATCHES),
            "loss_scale": context.get("loss_scale", 1.0),
            "seed": seed & WORD,
            "step_low": step & WORD,
            "step_high": step >> 32 & WORD,
        }
    )
    return data


def step_scalars_bytes() -> int:
    return layout(MODULE, "StepScalars").nbytes


def adam_correction(context: StepContext) -> float:
    """The correction of both means at this iteration; 0 if the momenta belong to a rule without one."""
    momentum, momentum2 = context.get("momentum", 0.0), context.get("momentum2", 0.0)
    if not (0 <= momentum < 1 and 0 <= momentum2 <= 1):
        return 0.0
    t = context.get("iteration", 0) + 1 - context.get("skipped", 0)
    return sqrt(1 - momentum2**t) / (1 - momentum**t)
