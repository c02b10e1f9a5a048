"""Which of its optional fusions a training step runs with (graph/optional_fusions.py).

They save time, so a step has all of them wherever a plan with them fits the budget, but for those that need inputs
earlier: where a plan takes much longer than the lower bound of its seconds, and one without these fusions is faster,
that one is taken.  To compare all plans would take twice the time; of 30 steps of five nets in 12 to 70 % of their
bytes those nearer to the bound differ by at most 3.2 %, either way, about what the sums save and costs do not count.
Where no plan fits, the strategy plans steps without more and more of them: it fits if one of these does, and the
minimum of a strategy is the smallest of all steps.
"""

from __future__ import annotations

from layermem.planning.attempt import Attempt
from layermem.planning.bounds import least_seconds_once
from layermem.planning.plan import Plan

NEAR_BOUND = 1.1  # times the lower bound of the seconds: a plan that is not compared with one without such fusions
SAVED = 1.001  # times the seconds of a step without some fusions: what they save is not all in its costs


def choose_fusions(attempt: Attempt) -> Attempt:
    """`attempt`, or the same without optional fusions where that is faster, or fits, or needs less."""
    budget_bytes, job = attempt.budget_bytes, attempt.job
    if budget_bytes is None or isinstance(attempt.strategy, Plan) or job.apart is None:
        return attempt
    fused = attempt.fitting()
    apart = attempt.with_job(job.apart)
    if fused is None:
        return _fitting(attempt, apart)
    seconds, graph = fused.program().seconds, job.graphs[0]
    if graph.apart:
        return fused
    bound = least_seconds_once(graph, job.costs, budget_bytes, job.hints.host_budget_bytes, job.train_arena)
    if seconds <= NEAR_BOUND * bound():
        return fused
    faster = apart.fitting()
    return faster if faster is not None and SAVED * faster.program().seconds < seconds else fused


def _fitting(attempt: Attempt, apart: Attempt) -> Attempt:
    """`apart` without more fusions, where it has some, or `attempt` if it needs less and nothing fits."""
    further = choose_fusions(apart)
    fitting = further.fitting()
    if fitting is not None:
        return fitting
    return min(attempt, further, key=lambda each: each.compiler.search.min_memory_program.arena_bytes)
