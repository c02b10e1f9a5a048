"""The path of a training step from its graphs to a checked program, stage after stage.

graphs      the step, then the other graphs that share its arena                job.py, solver/jobs.py
partition   the slices of the fastest program                                slice_search.py
rewrite     the optional fusions of the fastest program                      compiler.py, graph/rewrite.py
strategy    an order of ops, and a decision for every gap between two uses   budget_search.py, strategies/
lower       instructions and residencies                                     schedule/lower.py
place       an offset for every residency                                    schedule/place.py
simulate    the predicted seconds of the step                                schedule/simulate.py
join        updates that wait for each other become one launch               joined_updates.py
check       proof that every instruction reads the values that it should     schedule/check.py
keep        the plan, for later questions about the same step                kept_plans.py
"""

from collections.abc import Sequence

from layermem.graph.ops import Graph
from layermem.planning.attempt import Attempt
from layermem.planning.compiler import Compiler
from layermem.planning.costs import Costs, model_costs
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.kept_plans import KeptPlans
from layermem.planning.registry import Choice, default_strategy
from layermem.planning.slice_search import choose_slices
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.program import Program


def plan_step(job: Job, strategy: Choice, budget_bytes: int | None, *, quick: bool = False) -> Attempt:
    """The attempt with the fastest program that is known of `job` under a strategy or a saved plan: the one that a
    search finds, or a kept one that is faster or that alone fits; with a refusal if there is none.  A budget that was
    asked for before needs no search.  `quick`: search neither for slices nor for the minimum."""
    attempt = Attempt.of(job, strategy, budget_bytes)
    kept = KeptPlans.of(attempt)
    if kept is not None and not quick and (known := kept.answer(attempt)) is not None:
        return known
    found = (attempt if quick else choose_slices(attempt)).finished(quick=quick)
    return found if kept is None else kept.fastest_with(found, attempt, is_answer=not quick)


def compile(
    graphs: Sequence[Graph],
    strategy: Choice | None = None,
    budget_bytes: int | None = None,
    costs: Costs | None = None,
    hints: Hints = Hints(),
) -> Program:
    """The fastest program of `graphs`, the first of which trains; BudgetError if none fits."""
    arena = ArenaPlanner(graphs, costs or model_costs(graphs[0].device))
    return Compiler(arena, strategy or default_strategy(budget_bytes), hints).compile(budget_bytes)
