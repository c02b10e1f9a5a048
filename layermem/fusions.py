"""Which of its optional fusions a training step runs with (graph/optional_fusions.py).

They save time, so a step has all of them wherever a plan with them fits the budget, but for those that need inputs
earlier: where a plan takes longer than its ops once, and one without these fusions is faster, that one is taken.
Where no plan fits, the strategy plans steps without more and more of them: it fits if one of these does, and the
minimum of a strategy is the smallest of all steps.
"""

from __future__ import annotations

from layermem.planning.plan import Plan
from layermem.planning.registry import Choice
from layermem.slicing import Attempt, attempt_of, compiled, ops_seconds

SAVED = 1.001  # times the seconds of a step without some fusions: what they save is not all in its costs


def choose_fusions(attempt: Attempt, strategy: Choice) -> Attempt:
    """`attempt`, or the same without optional fusions where that is faster, or fits, or needs less."""
    budget_bytes, job = attempt.budget_bytes, attempt.job
    if budget_bytes is None or isinstance(strategy, Plan) or job.apart is None:
        return attempt
    fused = compiled(attempt)
    apart = attempt_of(job.apart, strategy, budget_bytes)
    if fused is None:
        return _fitting(attempt, apart, strategy)
    seconds = fused.program().seconds
    if job.graphs[0].apart or seconds <= ops_seconds(job.graphs[0], job.costs):
        return fused
    faster = compiled(apart)
    return faster if faster is not None and SAVED * faster.program().seconds < seconds else fused


def _fitting(attempt: Attempt, apart: Attempt, strategy: Choice) -> Attempt:
    """`apart` without more fusions, where it has some, or `attempt` if it needs less and nothing fits."""
    further = choose_fusions(apart, strategy)
    fitting = compiled(further)
    if fitting is not None:
        return fitting
    return min(attempt, further, key=lambda each: each.compiler.search.min_memory_program.arena_bytes)
