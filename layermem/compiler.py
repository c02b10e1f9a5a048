"""All rooms so far on one page: graphs of a net -> plans -> schedules over one arena, inside a budget.

a strategy makes a plan of the train graph for the budget; program.py places it, and the other graphs beside it
if more bytes are needed than the strategy counted, schedule/within.py asks it again for less
if nothing fits, the leanest program that the strategy reaches says what the least budget is
every schedule is checked before anybody may run it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from layermem.errors import BudgetError, InputError
from layermem.graph.ops import Graph
from layermem.planning.base import Hints, Plan, default_strategy
from layermem.planning.budget_search import fastest_under_budget
from layermem.planning.costs import Costs, model_costs
from layermem.planning.strategies import get_strategy
from layermem.schedule.arena_planner import ArenaPlanner, Program
from layermem.schedule.check import UnsafeSchedule, check
from layermem.schedule.ir import Schedule
from layermem.utils.units import format_below, format_bytes, format_exact_bytes

MINIMUM_MEMORY = 0  # a budget that nothing fits: strategies answer it with the leanest plan they know
ROUNDS = 8  # of asking for a byte less than the leanest program so far
LARGEST = 5  # buffers that a refusal lists
AUTO = "auto"  # knows all others
OTHERS = ("liveness", "intra", "sublinear", "recompute", "hybrid")  # what a refusal looks at
RIVALS = (*OTHERS, "recompute-approx", "inter", "vdnn-all", "vdnn-conv")  # what `auto` is measured by


def compile(
    graphs: Sequence[Graph],
    *,
    strategy: str | Callable[..., Plan] | None = None,
    budget: int | None = None,
    costs: Costs | None = None,
    plan: Plan | None = None,
    hints: Hints = Hints(),
) -> Program:
    """Schedules for `graphs` (the first one trains) under `budget` bytes, by a strategy or a plan made before.

    BudgetError names the least budget that would do."""
    compiler = Compiler(graphs, strategy or default_strategy(budget), costs=costs, plan=plan, hints=hints)
    try:
        return compiler.program(budget)
    except BudgetError as error:
        raise compiler.with_others(error) from None


class Compiler:
    """One strategy, or one plan, over some graphs, to be asked about any budget."""

    def __init__(
        self,
        graphs: Sequence[Graph],
        strategy: str | Callable[..., Plan],
        *,
        costs: Costs | None = None,
        plan: Plan | None = None,
        hints: Hints = Hints(),
    ):
        self.arena_planner = ArenaPlanner(graphs, costs or model_costs(graphs[0].device))
        self.plan, self.hints = plan, hints
        self.mixes = plan is None and strategy == AUTO
        self.make: Callable[..., Plan]
        if plan is not None:
            self.make = lambda *asked: plan
        else:
            self.make = get_strategy(strategy).make if isinstance(strategy, str) else strategy

    def program(self, budget: int | None) -> Program:
        """The strategy's program for `budget`, or its leanest one if only that fits."""
        if self.plan is None:
            return self._program(budget)
        try:
            self.plan.validate(self.arena_planner.graphs[0])
            return self._program(budget)
        except (ValueError, UnsafeSchedule) as error:
            raise InputError(f"the saved plan cannot be run ({error}); make it again") from error

    def _program(self, budget: int | None) -> Program:
        program = self._attempt(budget)
        if budget is not None and program.arena_bytes > budget:
            program = self.min_memory_program
            if program.arena_bytes > budget:
                raise self._over_budget(budget)
        room = self.hints.host_budget
        if room is not None and program.host_bytes > room:
            raise over_host_budget(program, room)
        check(*program.schedules)
        return program

    @cached_property
    def min_memory_program(self) -> Program:
        """The smallest program that is found; its arena is the least budget."""
        best = self._attempt(MINIMUM_MEMORY)
        for _ in range(ROUNDS):
            plan = self._made(best.arena_bytes - 1)
            leaner = best if plan == best.train.plan else self._attempt(best.arena_bytes - 1, plan)
            if leaner.arena_bytes >= best.arena_bytes:
                break
            best = leaner
        return best

    def _attempt(self, budget: int | None, plan: Plan | None = None) -> Program:
        """The program of the strategy's plan for `budget`, or if it is over when placed, the quickest found that fits;
        the plan may be made already."""
        plan = plan or self._made(budget)
        first = self.arena_planner.place(plan, target=budget or 0)
        if budget is None or first.arena_bytes <= budget or self.arena_planner.live_bytes(plan) > budget:
            return first
        tried = [first]

        def ask(nbytes: int) -> Program | None:
            made = self._made(nbytes)
            if any(made == program.train.plan for program in tried):
                return None
            tried.append(self.arena_planner.place(made, target=budget))
            return tried[-1]

        best = fastest_under_budget(budget, first, ask)
        if self.mixes:
            best = self._quicker_rival(budget, best)
        return best or min(tried, key=lambda program: program.arena_bytes)

    def _quicker_rival(self, budget: int, best: Program | None) -> Program | None:
        """`best`, or where asking `auto` for less made it slower than a single strategy is, that one's program."""
        for other in RIVALS:
            plan = replace(self._by(get_strategy(other).make, budget), strategy=AUTO)
            seconds = self.arena_planner.estimate_seconds(plan)
            if self.arena_planner.live_bytes(plan) <= budget and (best is None or seconds < best.timeline().seconds):
                program = self.arena_planner.place(plan, target=budget)
                best = program if program.arena_bytes <= budget else best
        return best

    def _made(self, budget: int | None) -> Plan:
        return self.plan or self._by(self.make, budget)

    def _by(self, make: Callable[..., Plan], budget: int | None) -> Plan:
        return make(self.arena_planner.graphs[0], self.arena_planner.costs, budget, self.arena_planner, self.hints)

    def _over_budget(self, budget: int) -> BudgetError:
        """The refusal: the budget, the minimum, and the peak with the largest buffers at it."""
        program = self.min_memory_program
        schedule = max(program.schedules, key=lambda s: s.max_live_bytes)
        subject = f"'{program.train.plan.strategy}'" if self.plan is None else "the saved plan"
        if self.hints.host_budget is not None:
            subject += f" with {format_bytes(self.hints.host_budget)} of host memory"
        return BudgetError(
            f"budget {format_below(budget, program.arena_bytes)} is below the minimum of {subject}, "
            f"{format_exact_bytes(program.arena_bytes)}.",
            budget=budget,
            minimum=program.arena_bytes,
            details=[("peak at", _peak(schedule, program.train))],
        )

    def with_others(self, error: BudgetError) -> BudgetError:
        """A refusal that also says which other strategies fit, and how little they take."""
        if error.host:
            return error
        mine = None if self.plan is not None else self.min_memory_program.train.plan.strategy
        reached: dict[str, int] = {}
        for other in (*OTHERS, AUTO) if mine != AUTO else ():
            if other != mine and not (other == AUTO and reached):
                live = self.arena_planner.live_bytes(self._by(get_strategy(other).make, MINIMUM_MEMORY))
                if live <= error.budget:
                    reached[other] = live
        fits = ", ".join(f"{other} {format_bytes(live)}" for other, live in reached.items())
        return error.with_detail("fits", fits or "no other strategy fits this budget")


def _peak(schedule: Schedule, train: Schedule) -> str:
    """The instruction at the peak of `schedule`, and the largest buffers there."""
    instruction = schedule.instructions[schedule.peak_tick]
    where = f"tick {instruction.tick}" if schedule is train else f"tick {instruction.tick} of {schedule.graph.name}"
    sizes = (
        f"{r.buffer if r.buffer in schedule.graph.buffers else 'workspace'} {format_bytes(r.nbytes)}"
        for r in schedule.live_at(instruction.tick)[:LARGEST]
    )
    return f"{instruction.kind} {instruction.what} ({where}): {', '.join(sizes)}"


def over_host_budget(program: Program, budget: int) -> BudgetError:
    needed = program.host_bytes
    return BudgetError(
        f"host budget {format_below(budget, needed)} is below what '{program.train.plan.strategy}' offloads, "
        f"{format_exact_bytes(needed)}; raise --host-budget or choose a strategy that recomputes.",
        budget=budget,
        minimum=needed,
        host=True,
    )
