"""The path of a training step from its graphs to a checked program, stage after stage.

graphs      the step, then the other graphs that share its arena             job.py, solver/jobs.py
partition   the slices of the fastest program                                slice_search.py
rewrite     the optional fusions of the fastest program                      fusion_search.py, graph/rewrite.py
strategy    an order of ops, and a decision for every gap between two uses   budget_search.py, strategies/
lower       instructions and residencies                                     schedule/lower.py
place       an offset for every residency                                    schedule/place.py
simulate    the predicted seconds of the step                                schedule/simulate.py
join        updates that wait for each other become one launch               joined_updates.py
check       proof that every instruction reads the values that it should     schedule/check.py
keep        the plan, for later questions about the same step                kept_plans.py
"""

from collections.abc import Sequence
from functools import partial

from layermem.graph.ops import Graph
from layermem.planning.attempt import Attempt
from layermem.planning.costs import Costs, model_costs
from layermem.planning.fusion_search import FusionSearch
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.joined_updates import join_updates
from layermem.planning.kept_plans import KeptPlans
from layermem.planning.plan import Plan
from layermem.planning.registry import Choice, default_strategy
from layermem.planning.slice_search import choose_slices
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import check
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.program import Program
from layermem.schedule.simulate import simulate


def plan_step(job: Job, strategy: Choice, budget_bytes: int | None, *, quick: bool = False) -> Attempt:
    """Plan `job` under a strategy or a saved plan.  Return the attempt with the fastest program, of those that a search
    finds and those that were kept, or with a refusal.  A budget that was asked for before needs no search.  `quick`:
    search neither for slices nor for the minimum."""
    attempt = Attempt.of(job, strategy, budget_bytes, Compiler)
    kept = KeptPlans.of(attempt)
    if kept is not None and not quick and (known := kept.answer(attempt)) is not None:
        return known
    partitioned = attempt if quick else choose_slices(attempt)
    found = partitioned.with_chosen_fusions(quick=quick)
    return found if kept is None else kept.fastest_with(found, attempt, is_answer=not quick)


class Compiler(FusionSearch):
    """Makes the programs of one step, whose slices and fusions are given."""

    def compile_fused(self, budget_bytes: int | None, *, quick: bool = False) -> Program:
        """The fastest program that was found with all fusions; BudgetError, with the minimum, if none fits.  `quick`:
        without a search for the minimum."""
        found = self.search.program(budget_bytes, search_minimum=not quick)  # by the strategy, whose plans it builds
        return self.checked(join_updates(found, self.arena.layouts[0].live_profile, self.build))

    def build(self, plan: Plan, target_bytes: int = 0) -> Program:
        """Place one plan; the search for offsets ends once they need at most `target_bytes`."""
        build = partial(self._build, plan, target_bytes)
        return self.arena.programs.get(self.arena.key_of(plan), target_bytes, plan, build)

    def _build(self, plan: Plan, target_bytes: int) -> Program:
        lowered = [lower(layout, each) for layout, each in zip(self.arena.layouts, self.arena.plans(plan))]
        offsets = self.arena.persistent_offsets(plan)
        schedules = [place(each, persistent=offsets, target_bytes=target_bytes) for each in lowered]
        return Program.of(schedules, offsets, simulate(schedules[0], self.arena.costs), target_bytes)

    def checked(self, program: Program) -> Program:
        """`program`, whose schedules are proven to be safe."""
        self.arena.programs.check(program, lambda: check(*program.schedules))
        return program


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
