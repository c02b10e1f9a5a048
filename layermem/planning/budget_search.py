"""The fastest program of a strategy within a budget, or the one that needs the least memory if none fits.

A strategy counts live bytes.  If its plan needs more bytes when it is placed, a plan for fewer bytes is requested:

    first    budget - a step of the ladder, if that is less than 2 over             over: bytes above the budget
    then     budget - 2 over, - 4 over, - 8 over ...                                until a program fits
    then     halfway between this request and the last one that failed, while a faster program may lie there.  If the
             strategy has no plan for a request, it returns its smallest plan; if that plan fits, the search goes on
             above its bytes

The ladder is a fixed series of byte counts, its rungs.  A request is rounded down to a rung if it is at least a step of
the ladder below the budget.  So neighbouring budgets try the same plans, and more bytes do not lead to worse plans.

Copies that hold spare bytes of the budget (Plan.copy_limit_bytes) fill the arena at nearly all ops, so offsets are hard
to find.  If necessary, such a plan is placed with copies that hold no bytes, then with the highest limit that can be
placed.  If that makes it much slower, a plan made for this limit is tried too.

The search ends when no program can be much faster than the best one.  Programs for smaller budgets also fit: a few are
tried for short steps that are not near their lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from layermem.errors import BudgetError
from layermem.graph.ops import Graph
from layermem.planning.bounds import least_seconds_once
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import Plan
from layermem.planning.registry import (
    MINIMUM_MEMORY,
    PlanEvaluator,
    StrategyEntry,
    single_strategies,
    suggested_strategies,
)
from layermem.planning.settings import SETTINGS
from layermem.schedule.program import Program
from layermem.utils.units import ALIGN


class BudgetSearch:
    """A strategy over one training graph; program() returns its program for any budget."""

    def __init__(
        self,
        entry: StrategyEntry,
        graph: Graph,
        costs: Costs,
        evaluator: PlanEvaluator,
        hints: Hints,
        build: Callable[..., Program],
    ):
        self.entry, self.graph, self.costs = entry, graph, costs
        self.evaluator, self.hints, self.build = evaluator, hints, build
        self._plans: dict[tuple[str, int | None, int | None], Plan] = {}

    def program(self, budget_bytes: int | None, *, search_minimum: bool = True) -> Program:
        """The fastest program that was found within the budget; BudgetError, with the minimum, if there is none.

        search_minimum   if neither the plan for the budget nor the plan of least memory fits, search for the minimum,
                         which may fit; if False, the error states the bytes of the plan of least memory
        """
        program = self._fastest_fitting(None if budget_bytes is None else budget_bytes // ALIGN * ALIGN)
        if budget_bytes is not None and program.arena_bytes > budget_bytes:
            least = self.min_memory_program if search_minimum else self._fastest_fitting(MINIMUM_MEMORY)
            program = min(least, program, key=lambda each: each.arena_bytes)
            if program.arena_bytes > budget_bytes:
                message = f"no program of '{self.entry.name}' fits {budget_bytes:,} bytes"
                raise BudgetError(message, budget_bytes=budget_bytes, minimum_bytes=program.arena_bytes)
        if budget_bytes is not None and self.entry.combines_others:
            program = self._fastest_of_rungs(budget_bytes, program)
        host_bytes = self.hints.host_budget_bytes
        if host_bytes is not None and program.host_bytes > host_bytes:
            message = f"'{self.entry.name}' needs more than {host_bytes:,} bytes of the host"
            raise BudgetError(message, budget_bytes=host_bytes, minimum_bytes=program.host_bytes, host=True)
        return program

    def _least_seconds(self, budget_bytes: int) -> float:
        return least_seconds_once(self.graph, self.costs, budget_bytes, self.hints.host_budget_bytes, self.evaluator)()

    @cached_property
    def min_memory_program(self) -> Program:
        """The smallest program that was found; its arena is the least budget.

        Each request is below the smallest program so far.  The distance doubles after a request that yields a smaller
        program and halves after any other, down to one unit.  So the last request that failed is the request that
        program() makes for the next smaller budget, which is refused.
        """
        best = self._fit(MINIMUM_MEMORY)
        step = ALIGN
        while step >= ALIGN:
            smaller = self._fit(max(best.arena_bytes - step, 0), fastest=False)
            if smaller.arena_bytes < best.arena_bytes:
                best, step = smaller, 2 * step
            else:
                step = min(step // 2, best.arena_bytes) // ALIGN * ALIGN
        return best

    def suggestions(self, budget_bytes: int) -> dict[str, int]:
        """Other strategies whose plans fit, with the fewest live bytes that each needs."""
        if self.entry.combines_others:
            return {}
        fewest_bytes: dict[str, int] = {}
        for other in suggested_strategies():
            if other.name == self.entry.name or (other.combines_others and fewest_bytes):
                continue
            live_bytes = self.evaluator.live_bytes(self.plan_of(other, MINIMUM_MEMORY))
            if live_bytes <= budget_bytes:
                fewest_bytes[other.name] = live_bytes
        return fewest_bytes

    def plan_of(self, entry: StrategyEntry, budget_bytes: int | None, copy_limit_bytes: int | None = None) -> Plan:
        """The plan of a strategy, made once for each budget and copy limit."""
        key = entry.name, budget_bytes, copy_limit_bytes
        if key not in self._plans:
            hints = replace(self.hints, copy_limit_bytes=copy_limit_bytes)
            plan = entry.make(self.graph, self.costs, budget_bytes, self.evaluator, hints)
            slices, fingerprint = self.graph.slices, self.graph.fingerprint
            is_of_graph = (plan.slices, plan.fingerprint) == (slices, fingerprint)
            self._plans[key] = plan if is_of_graph else replace(plan, slices=slices, fingerprint=fingerprint)
        return self._plans[key]

    def own_plan(self, budget_bytes: int) -> Plan:
        """The plan of this strategy that program() starts from."""
        return self.plan_of(self.entry, budget_bytes // ALIGN * ALIGN)

    def know(self, budget_bytes: int, plan: Plan) -> None:
        """Store `plan` as the result of own_plan(), because another process has made it."""
        self._plans[self.entry.name, budget_bytes // ALIGN * ALIGN, None] = plan

    def _fastest_fitting(self, budget_bytes: int | None) -> Program:
        """The program of the strategy's plan for the budget; if that does not fit, the fastest program found that does.

        Arenas and requests are multiples of ALIGN, so budgets are rounded down to one."""
        program = self._fit(budget_bytes)
        if budget_bytes is None or program.arena_bytes > budget_bytes:
            return program
        program = self._with_more_held(program, budget_bytes, budget_bytes)
        plan = self.plan_of(self.entry, budget_bytes)
        limit_bytes = program.plan.copy_limit_bytes
        if limit_bytes is None or limit_bytes == plan.copy_limit_bytes:
            return program
        if program.seconds > SETTINGS.near_ratio * self.evaluator.estimate_seconds(plan):
            limited = self._placed(self.plan_of(self.entry, budget_bytes, limit_bytes), budget_bytes)
            if limited.arena_bytes <= budget_bytes:
                program = min(program, self._with_more_held(limited, budget_bytes, limit_bytes), key=_seconds)
        return self._faster_single_limited(budget_bytes, program) if self.entry.combines_others else program

    def _fit(self, budget_bytes: int | None, *, fastest: bool = True) -> Program:
        """The result of _fastest_fitting() with copies that hold either as many bytes as their plan states or none; it
        fits if that result does.  Unless `fastest`, programs between the plan of fewest bytes and the budget are
        skipped."""
        plan = self.plan_of(self.entry, budget_bytes)
        first = self._placed(plan, budget_bytes)
        if budget_bytes is None or first.arena_bytes <= budget_bytes or self.evaluator.live_bytes(plan) > budget_bytes:
            return first
        tried = [first]

        def build_for(request: int) -> Program:
            plan = self.plan_of(self.entry, request)
            known = next((program for program in tried if program.plan == plan), None)
            if known is None:
                tried.append(known := self._placed(plan, budget_bytes))
            return known

        best = fastest_under_budget(budget_bytes, first, build_for, above_least=fastest)
        if self.entry.combines_others:
            best = self._faster_single(budget_bytes, best)
        return best or min(tried, key=lambda program: program.arena_bytes)

    def _placed(self, plan: Plan, budget_bytes: int | None) -> Program:
        """The program of `plan`; with copies that hold no bytes if it is over the budget otherwise.  Placement that
        misses a target may reach a smaller one: the rung below the budget, which neighbouring budgets share."""
        program = self.build(plan, target_bytes=budget_bytes or 0)
        if budget_bytes is None or program.arena_bytes <= budget_bytes:
            return program
        if plan.copy_limit_bytes:
            return self.build(replace(plan, copy_limit_bytes=0), target_bytes=budget_bytes)
        rung = rung_of(budget_bytes, 2 * budget_bytes) // ALIGN * ALIGN
        lower = self.build(plan, target_bytes=rung) if program.max_live_bytes <= rung else program
        return min(program, lower, key=lambda each: each.arena_bytes)

    def _with_more_held(self, program: Program, budget_bytes: int, limit_bytes: int) -> Program:
        """`program`; if its copies hold no bytes, the fastest program found with copies that hold some, below this
        limit. The highest limit that fits is bisected; the last of all halvings is tried first."""
        if program.plan.copy_limit_bytes != 0:
            return program

        def within(copy_limit_bytes: int) -> Program | None:
            tried = self.build(replace(program.plan, copy_limit_bytes=copy_limit_bytes), target_bytes=budget_bytes)
            return tried if tried.arena_bytes <= budget_bytes else None

        highest = 0
        for _ in range(SETTINGS.copy_limit_halvings):
            highest = (highest + limit_bytes) // 2
        if (held := within(highest)) is not None:
            return min(program, held, key=_seconds)
        best, low, high = program, 0, limit_bytes
        for _ in range(SETTINGS.copy_limit_halvings):
            middle = (low + high) // 2
            held = within(middle)
            if held is None:
                high = middle
            else:
                low, best = middle, min(best, held, key=_seconds)
        return best

    def _fastest_of_rungs(self, budget_bytes: int, best: Program) -> Program:
        """`best`, or the strategy's program for a smaller budget if that is faster; it may take the whole budget."""
        enough: float | None = None
        op_pairs = max(1, len(self.graph.ops) ** 2)
        for rung in rungs_below(budget_bytes // ALIGN * ALIGN, SETTINGS.rung_op_pairs // op_pairs):
            if enough is None:
                enough = SETTINGS.near_ratio * self._least_seconds(budget_bytes)
            if best.seconds <= enough:
                break
            plan = self.plan_of(self.entry, rung)
            if self.evaluator.live_bytes(plan) > rung:
                break
            if plan.copy_limit_bytes is None:
                program = self.build(plan, target_bytes=budget_bytes)
            elif self.evaluator.estimate_seconds(plan) <= SETTINGS.hopeful_ratio * best.seconds:
                program = self._fastest_fitting(rung)
            else:
                continue
            if program.arena_bytes <= budget_bytes and program.seconds * SETTINGS.as_good_ratio < best.seconds:
                best = program
        return best

    def _faster_single(self, budget_bytes: int, best: Program | None) -> Program | None:
        """`best`, or the program of a single strategy if requests for fewer bytes made `best` slower than that."""
        for entry in single_strategies():
            plan = self.plan_of(entry, budget_bytes)
            seconds = self.evaluator.estimate_seconds(plan)
            if self.evaluator.live_bytes(plan) <= budget_bytes and (best is None or seconds < best.seconds):
                program = self._placed(self._as_own(plan), budget_bytes)
                if program.arena_bytes <= budget_bytes:
                    best = program if best is None else min(best, program, key=_seconds)
        return best

    def _faster_single_limited(self, budget_bytes: int, best: Program) -> Program:
        """`best`, or the program of a single strategy with copies if that is faster, with all attempts made for one.
        If its plan is slower than `best` with all that its copies may hold, it is also slower with less."""
        for entry in single_strategies():
            plan = self.plan_of(entry, budget_bytes)
            if not plan.decisions or self.evaluator.live_bytes(plan) > budget_bytes:
                continue
            if self.evaluator.estimate_seconds(plan) > SETTINGS.hopeful_ratio * best.seconds:
                continue
            if self.build(plan, target_bytes=budget_bytes).seconds >= best.seconds:
                continue
            search = BudgetSearch(entry, self.graph, self.costs, self.evaluator, self.hints, self.build)
            search._plans = self._plans
            program = search._fastest_fitting(budget_bytes)
            if program.arena_bytes <= budget_bytes and program.seconds < best.seconds:
                best = self.build(self._as_own(program.plan), target_bytes=budget_bytes)
        return best

    def _as_own(self, plan: Plan) -> Plan:
        """The plan of a single strategy, renamed as a plan of this search."""
        return replace(plan, strategy=self.entry.name, base=plan.strategy)


def _seconds(program: Program) -> float:
    return program.seconds


def rungs_below(budget_bytes: int, count: int) -> list[int]:
    """At most `count` budgets below this one, SETTINGS.rungs steps of the ladder below it, the largest first."""
    octaves = range(max(0, budget_bytes.bit_length() - 3), budget_bytes.bit_length())
    number = SETTINGS.rungs_per_octave
    ladder = {
        (1 << octave) * step // number // ALIGN * ALIGN for octave in octaves for step in range(number, 2 * number)
    }
    below = sorted((rung for rung in ladder if 0 < rung < budget_bytes), reverse=True)
    return [below[rung - 1] for rung in SETTINGS.rungs[:count] if rung <= len(below)]


def ladder_step(budget_bytes: int) -> int:
    """The distance of two rungs near these bytes, on the ladder of requests."""
    return (1 << max(0, budget_bytes.bit_length() - 1)) // SETTINGS.requests_per_octave


def rung_of(request: int, budget_bytes: int) -> int:
    """The request, rounded down to a rung if it is at least a step of the ladder below the budget."""
    step = ladder_step(request) if request > 0 else 0
    return request // step * step if 0 < step <= budget_bytes - request else request


def fastest_under_budget(
    budget_bytes: int, first: Program, build_for: Callable[[int], Program], *, above_least: bool = True
) -> Program | None:
    """The fastest program found within the budget, or None.

    first        the placed program for the budget itself, which is over it
    build_for    the program for a request in bytes, placed; the same object if its plan was built before
    above_least  if a request yields the program of the fewest bytes, which exceeds it but fits, search above that
    """
    seen = [first]
    most_over = max(1, budget_bytes // (2 * SETTINGS.first_request_divisor))
    over = min(first.arena_bytes - budget_bytes, most_over)
    found = _first_that_fits(budget_bytes, over, build_for, seen)
    if found is None:
        return None
    best, request, too_much = found
    least = best if above_least and best.max_live_bytes > request else None
    request = request if least is None else least.max_live_bytes
    good_enough = first.seconds * SETTINGS.as_good_ratio
    near = min(over, max(1, ladder_step(budget_bytes)))
    for _ in range(SETTINGS.request_halvings):
        if best.seconds <= good_enough or (too_much - request < near and best is not least):
            break
        middle = rung_of((request + too_much) // 2, budget_bytes)
        if middle <= request:
            break
        program = build_for(middle)
        if program is least and program.max_live_bytes > middle:
            request = middle  # the strategy cannot meet this request either
            continue
        if program.arena_bytes > budget_bytes or not _is_new(program, seen):
            too_much = middle
            continue
        request = middle
        seen.append(program)
        best = min(best, program, key=_seconds)
    return best


def _first_that_fits(
    budget_bytes: int, over: int, build_for: Callable[[int], Program], seen: list[Program]
) -> tuple[Program, int, int] | None:
    """The program of the first request that fits, that request, and the last request that failed; appends all programs
    to `seen`.  None if the strategy has no plan with so few bytes, or after too many requests."""
    too_much, step = budget_bytes, ladder_step(budget_bytes)
    distances = [over << doubling for doubling in range(1, SETTINGS.request_doublings + 1)]
    distances = [step, *distances] if 0 < step < distances[0] else distances
    for request in dict.fromkeys(rung_of(budget_bytes - distance, budget_bytes) for distance in distances):
        if request <= 0:
            return None
        program = build_for(request)
        fits = program.arena_bytes <= budget_bytes
        if not fits and program.max_live_bytes > request and _is_new(program, seen):
            return None
        seen.append(program)
        if fits:
            return program, request, too_much
        too_much = request
    return None


def _is_new(program: Program, seen: Sequence[Program]) -> bool:
    return all(program is not other for other in seen)
