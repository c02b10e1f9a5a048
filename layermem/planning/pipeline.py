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

from layermem.planning.fusion_search import Attempt, FusionSearch
from layermem.planning.job import Job
from layermem.planning.joined_updates import join_updates
from layermem.planning.kept_plans import KeptPlans
from layermem.planning.plan import Plan
from layermem.planning.registry import Choice
from layermem.planning.slice_search import choose_slices
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
        found = self.search.program(budget_bytes, search_minimum=not quick)  # by the strategy, whose plans it builds
        return self.checked(join_updates(found, self.arena.layouts[0].live_profile, self.build))

    def build(self, plan: Plan, target_bytes: int = 0) -> Program:
        def make() -> Program:
            lowered = [lower(layout, each) for layout, each in zip(self.arena.layouts, self.arena.plans(plan))]
            offsets = self.arena.persistent_offsets(plan)
            schedules = [place(each, persistent=offsets, target_bytes=target_bytes) for each in lowered]
            return Program.of(schedules, offsets, simulate(schedules[0], self.arena.costs), target_bytes)

        return self.arena.programs.get(self.arena.key_of(plan), target_bytes, plan, make)

    def checked(self, program: Program) -> Program:
        self.arena.programs.check(program, lambda: check(*program.schedules))
        return program
