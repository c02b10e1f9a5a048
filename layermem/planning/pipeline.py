"""The path of a training step from its graphs to a checked program, stage after stage.

graphs      the step, then the other graphs that share its arena                job.py, solver/jobs.py
partition   the slices and optional fusions of the fastest program           slice_search.py, fusion_choice.py
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
from layermem.planning.budget_search import BudgetSearch, targets_within
from layermem.planning.costs import Costs, model_costs
from layermem.planning.fusion_choice import FusionChoice
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.joined_updates import join_updates
from layermem.planning.kept_plans import KeptPlan
from layermem.planning.plan import Plan, saved_fingerprint, saved_slices
from layermem.planning.registry import Choice, as_entry, default_strategy
from layermem.planning.slice_search import choose_slices
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import check
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from layermem.schedule.program import Program
from layermem.schedule.simulate import simulate


def plan_step(job: Job, strategy: Choice, budget_bytes: int | None) -> Attempt:
    """The attempt with `job` in the slices of its fastest program under a strategy or a saved plan."""
    return choose_slices(Attempt.of(job, strategy, budget_bytes, Compiler))


def place_kept(job: Job, strategy: Choice, budget_bytes: int, kept: KeptPlan) -> Attempt:
    """The attempt with `job` in the slices of a plan that was found before, and its program; InputError, ValueError or
    UnsafeSchedule if the program does not fit, or takes longer than it did."""
    slices = saved_slices(kept.text)
    step = (job.with_slices(slices) if slices else job).with_fingerprint(saved_fingerprint(kept.text))
    compiler = Compiler(step.arena, strategy, step.hints)
    plan = Plan.from_json(kept.text, step.graphs[0])
    for target_bytes in (*targets_within(kept.budget_bytes), kept.arena_bytes):
        program = compiler.build(plan, target_bytes)
        is_within = program.arena_bytes <= budget_bytes and program.host_bytes <= kept.host_bytes
        if is_within and program.seconds <= kept.seconds:
            return Attempt(step, strategy, budget_bytes, Compiler, compiler, compiler.checked(program))
    raise ValueError("the plan does not do what was kept of it")


class Compiler(FusionChoice):
    """Compiles the graphs of an arena under a strategy or a saved plan, for any budget."""

    def __init__(self, arena: ArenaPlanner, strategy: Choice, hints: Hints = Hints()):
        super().__init__(arena, strategy, hints)
        self.search = BudgetSearch(as_entry(strategy), arena.graphs[0], arena.costs, arena, hints, self.build)

    def compile_fused(self, budget_bytes: int | None, *, quick: bool = False) -> Program:
        """The result of FusionChoice.compile_fused(); `quick`: without a search for the minimum."""
        program = self.search.program(budget_bytes, search_minimum=not quick)
        return self.checked(join_updates(program, self.arena.layouts[0].live_profile, self.build))

    def checked(self, program: Program) -> Program:
        """`program`, whose schedules are proven to be safe."""
        self.arena.programs.check(program, lambda: check(*program.schedules))
        return program

    def build(self, plan: Plan, target_bytes: int = 0) -> Program:
        """Place one plan; the search for offsets ends once they need at most `target_bytes`."""
        build = partial(self._build, plan, target_bytes)
        return self.arena.programs.get(self.arena.key_of(plan), target_bytes, plan, build)

    def _build(self, plan: Plan, target_bytes: int) -> Program:
        lowered = [lower(layout, each) for layout, each in zip(self.arena.layouts, self.arena.plans(plan))]
        offsets = self.arena.persistent_offsets(plan)
        schedules = [place(each, persistent=offsets, target_bytes=target_bytes) for each in lowered]
        return Program.of(schedules, offsets, simulate(schedules[0], self.arena.costs))


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
