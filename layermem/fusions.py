"""Whether a training step runs with its optional fusions (graph/optional_fusions.py).

They save time, so a step has them wherever a plan with them fits the budget.  Where none does, the strategy plans the
step without them: it fits if that does, and the minimum of a strategy is the smaller one of both steps.
"""

from __future__ import annotations

from layermem.planning.plan import Plan
from layermem.planning.registry import Choice
from layermem.slicing import Attempt, attempt_of, compiled


def choose_fusions(attempt: Attempt, strategy: Choice) -> Attempt:
    """`attempt`, or where it does not fit its budget, the same without optional fusions if that fits, or needs less."""
    if attempt.budget_bytes is None or isinstance(strategy, Plan) or attempt.job.apart is None:
        return attempt
    fused = compiled(attempt)
    if fused is not None:
        return fused
    apart = attempt_of(attempt.job.apart, strategy, attempt.budget_bytes)
    fitting = compiled(apart)
    if fitting is not None:
        return fitting
    return min(attempt, apart, key=lambda each: each.compiler.search.min_memory_program.arena_bytes)
