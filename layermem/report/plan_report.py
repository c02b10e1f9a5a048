"""Predicts a training step before it runs: a job under a strategy and a budget, compared with the baseline.

report = evaluate(job, "hybrid", "50%")
report.program, report.peak_bytes, report.seconds, report.minimum_bytes, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from layermem.errors import BudgetError, InputError
from layermem.graph.ops import PARAMETER, Graph
from layermem.graph.step_slicer import Slices
from layermem.ops import FP32
from layermem.planning.bounds import least_bytes, least_seconds_once
from layermem.planning.budget_search import BudgetSearch
from layermem.planning.fused_updates import with_fused_updates
from layermem.planning.fusion_search import Attempt
from layermem.planning.hints import Hints
from layermem.planning.job import AUTO, Budget, Job, items_of
from layermem.planning.pipeline import Compiler, plan_step
from layermem.planning.plan import Decision, Plan
from layermem.planning.registry import STRATEGIES, Choice, as_entry, default_strategy
from layermem.planning.slice_search import can_slice, may_fit_in_slices
from layermem.report.refusal import add_suggestions, describe_host_refusal, describe_refusal
from layermem.schedule.check import UnsafeSchedule
from layermem.schedule.ir import OFFLOAD, Instruction, Residency, Schedule
from layermem.schedule.program import Program
from layermem.schedule.simulate import Timeline
from layermem.utils.files import PathName
from layermem.utils.steps import report_step
from layermem.utils.units import aligned, format_bytes, format_seconds

ROUNDING = 1e-9  # share of a step by which sums of the same seconds may differ


def _report_of(attempt: Attempt, name: str, asked: Job | None = None) -> PlanReport:
    """The report of a finished attempt at planning `asked`; if nothing fits, of the smallest program."""
    job, compiler, error = attempt.job, attempt.compiler, attempt.refusal
    if error is None:
        program, search = attempt.program, compiler.search
        report_step("planned %s, strategy %s: peak %s", job.title, name, format_bytes(program.arena_bytes))
    else:
        search = compiler.smallest.search
        error, program = describe_refusal(error, search), search.min_memory_program
    job = job.with_fingerprint(program.train.graph.fingerprint)
    return PlanReport(job, name, attempt.budget_bytes, program, error, search, attempt.found_for_bytes, asked)


def _plan(job: Job, choice: Choice, name: str, budget_bytes: int | None, *, quick: bool = False) -> Attempt:
    """The result of plan_step(); BudgetError if the host budget is too small."""
    attempt = plan_step(job, choice, budget_bytes, quick=quick)
    if attempt.refusal is not None and attempt.refusal.host:
        raise describe_host_refusal(attempt.refusal, name)
    return attempt


def evaluate(
    job: Job,
    strategy: Choice | None = None,
    budget: Budget = None,
    plan: Plan | PathName | None = None,
    *,
    begin_bound: bool = False,
) -> PlanReport:
    """Plan `job` under `strategy` and `budget`, or by a saved plan.  With `begin_bound` the bound of its seconds is
    computed in a thread at the same time.

    If nothing fits the budget, the report has the refusal and describes the smallest program; a host budget that is too
    small is a BudgetError.
    """
    if strategy is not None and plan is not None:
        raise InputError("give a strategy or a saved plan, and not both")
    job, saved = job.with_plan(plan)
    budget_bytes = job.resolve_budget(budget)
    if begin_bound and budget_bytes is not None:
        _begin_bound(job, budget_bytes, job.hints.host_budget_bytes)
    choice = saved or strategy or default_strategy(budget_bytes)
    name = saved.strategy if saved is not None else as_entry(choice).name
    try:
        if saved is not None:
            saved.validate(job.graphs[0])
        attempt = _plan(job, choice, name, budget_bytes)
    except (ValueError, UnsafeSchedule) as error:
        if saved is None:
            raise
        raise InputError(f"the saved plan cannot be run ({error}); make it again") from error
    return _report_of(attempt, name, job if job.has_auto else None)


def _begin_bound(job: Job, budget_bytes: int, host_budget_bytes: int | None) -> Callable[[], float]:
    """Return a function that waits for the lower bound of a training step's seconds within these bytes, computed
    once."""
    return least_seconds_once(job.graphs[0], job.costs, budget_bytes, host_budget_bytes, job.arena)


def evaluate_if_fits(job: Job, strategy: str, budget_bytes: int) -> PlanReport | int:
    """Return the report of evaluate(), without a search for slices.  If neither the plan for the budget nor the one of
    least memory fits, return the fewest bytes of both: no minimum is searched."""
    attempt = _plan(job, strategy, strategy, budget_bytes, quick=True)
    return _report_of(attempt, strategy) if attempt.refusal is None else attempt.refusal.minimum_bytes


@dataclass(frozen=True, repr=False)
class PlanReport:
    """A program for a job under a budget (bytes, None without).

    If nothing fits, `refusal` explains it, and the program is the smallest of the strategy.
    `search` made the program and holds the native planners' caches; a new one would give the same answers.
    `found_for_bytes`: the other budget for which the plan was found before (planning/kept_plans.py), if it was.
    `asked`: the job as it was before the planner chose its slices, if it may choose them.
    """

    job: Job
    strategy: str
    budget_bytes: int | None
    program: Program
    refusal: BudgetError | None = None
    search: BudgetSearch | None = None
    found_for_bytes: int | None = None
    asked: Job | None = None

    def __getstate__(self) -> dict[str, object]:
        """The pickled state: all but the search, which is repeated if necessary.  The minimum over slices replaces the
        requested job, since only this process can search it."""
        known = {} if self.asked is None else {"minimum_program": self.minimum_program}
        return {**vars(self), **known, "search": None, "asked": None}

    def __repr__(self) -> str:
        fits = "" if self.feasible else f", over the budget of {format_bytes(self.budget_bytes or 0)}"
        numbers = f"peak {format_bytes(self.peak_bytes)}, {format_seconds(self.seconds)} per step"
        return f"<PlanReport: {self.job.title}, strategy {self.strategy}, {numbers}{fits}>"

    def __str__(self) -> str:
        """What `layermem plan` prints (report/summary.py, which reads reports)."""
        return str(import_module("layermem.report.summary").summary(self)).rstrip("\n")

    def _repr_html_(self) -> str:
        """The facts and the arena for a notebook (report/notebook.py, which reads reports)."""
        return str(import_module("layermem.report.notebook").plan_html(self))

    @property
    def feasible(self) -> bool:
        return self.refusal is None

    @property
    def items_per_second(self) -> float:
        """Items of all ranks in a second, as predicted; 0 where batches are sequences."""
        return items_of(self.job.nets[0]) * self.job.ranks.size / self.seconds if self.seconds else 0.0

    def explain_refusal(self) -> BudgetError:
        """The `refusal` with the strategies that would fit."""
        assert self.refusal is not None
        refusal = self.refusal
        if not self.job.wanted_slices and not refusal.host and can_slice(self.job):
            refusal = refusal.with_detail("slices", self._fit_in_slices())
        if self.storage == FP32 and not refusal.host:
            refusal = refusal.with_detail("storage", "fp32; --storage bf16 or fp16 halves the bytes of activations")
        free = Hints(host_budget_bytes=self.job.hints.host_budget_bytes)
        if self.job.hints != free and not refusal.host:
            least = Compiler(self.job.arena, self._search.entry, free).search.min_memory_program.arena_bytes
            if least < refusal.minimum_bytes:
                refusal = refusal.with_detail("hints", f"without them the minimum is {format_bytes(least)}")
        return add_suggestions(refusal, self._search)

    def _fit_in_slices(self) -> str:
        """Whether a plan in slices of the batch fits where one without them does not."""
        budget_bytes = self.budget_bytes or 0
        if may_fit_in_slices(self.job, budget_bytes):
            sliced = evaluate(self.job.with_slices(AUTO), self._search.entry, budget_bytes)
            if sliced.feasible:
                return f"none; with --slices auto a plan fits, in {format_bytes(sliced.peak_bytes)}"
            if sliced.peak_bytes < self.peak_bytes:
                return f"none; --slices auto lowers the minimum to {format_bytes(sliced.peak_bytes)}"
        return "none; no plan fits with --slices auto either"

    def feasible_program(self) -> Program:
        """The program; BudgetError if it does not fit."""
        if self.refusal is not None:
            raise self.explain_refusal()
        return self.program

    @property
    def _search(self) -> BudgetSearch:
        job = self.job
        return self.search or Compiler(job.arena, self.strategy, job.hints).search

    @property
    def peak_bytes(self) -> int:
        return self.program.arena_bytes

    @cached_property
    def minimum_bytes(self) -> int:
        """The smallest budget that the strategy fits."""
        return self.minimum_program.arena_bytes

    @cached_property
    def minimum_program(self) -> Program:
        """The program of the smallest budget: this one, or one that a search finds."""
        job, search = self.job, self._search
        programs = [self.program, search.min_memory_program]
        if self.asked is not None and self.feasible:
            programs.append(evaluate(self.asked, search.entry, 1).program)  # of the slices that need the fewest bytes
        less = Compiler(job.arena, search.entry, job.hints).less_fused
        if less is not None:
            programs.append(less.smallest.search.min_memory_program)
        return min(programs, key=lambda program: program.arena_bytes)

    @property
    def timeline(self) -> Timeline:
        return self.program.timeline

    @property
    def seconds(self) -> float:
        return self.timeline.seconds

    @property
    def overhead(self) -> float:
        """The additional time of a step as a share of the baseline's."""
        return self.seconds / self.job.baseline_seconds - 1 if self.job.baseline_seconds else 0.0

    @cached_property
    def bound_bytes(self) -> int:
        """Lower bound of the bytes of all plans."""
        return max(least_bytes(graph, self.available_host_bytes) for graph in self.job.graphs)

    @property
    def available_bytes(self) -> int:
        """Bytes available to a plan: the budget, or without one the bytes of this plan."""
        return max(self.peak_bytes, self.budget_bytes or 0)

    @property
    def available_host_bytes(self) -> int | None:
        """Bytes of the host available to a plan; None is no limit."""
        host_budget_bytes = self.job.hints.host_budget_bytes
        return None if host_budget_bytes is None else max(self.program.host_bytes, host_budget_bytes)

    @property
    def optimality_gap(self) -> float:
        """Upper bound of the time that a better plan could save, as a share of the baseline's time."""
        baseline = self.job.baseline_seconds
        return (self.seconds - self.bound_seconds) / baseline if baseline else 0.0

    @property
    def base(self) -> str:
        """The strategy from which the plan started, if its strategy combines others; otherwise ""."""
        return self.program.train.plan.base

    @property
    def base_is_offloaded(self) -> bool:
        """Whether the plan offloads buffers that its base does not."""
        decisions = self.program.train.plan.decisions.values()
        return Decision.OFFLOAD in decisions and self.base in STRATEGIES and not STRATEGIES[self.base].offloads

    @cached_property
    def bound_seconds(self) -> float:
        """Lower bound of the seconds of all plans in the same bytes."""
        graph, costs = self.job.graphs[0], self.job.costs
        ops = with_fused_updates(graph).ops
        every_op_once = sum(costs.op(op, joined=bool(op.joins)) for op in ops)  # lower bound of any step
        if self.seconds < every_op_once * (1 + ROUNDING):
            return every_op_once
        return _begin_bound(self.job, self.available_bytes, self.available_host_bytes)()

    @property
    def parameter_bytes(self) -> int:
        named = {b.name: b.nbytes for g in self.job.graphs for b in g.buffers.values() if b.kind == PARAMETER}
        return sum(named.values())

    @property
    def slices(self) -> Slices | None:
        """The layers that run in slices, or whose weights are in bands, if there are any."""
        slices = self.job.graphs[0].slices
        return Slices.parse(slices) if slices else None

    @property
    def not_fused(self) -> tuple[str, ...]:
        """The fusions that the step leaves out to save bytes."""
        return self.job.graphs[0].not_fused

    @property
    def device(self) -> str:
        return self.job.graphs[0].device

    @property
    def storage(self) -> str:
        return self.job.graphs[0].storage

    @property
    def target(self) -> str:
        return self.job.graphs[0].target

    @property
    def fragmentation_bytes(self) -> int:
        """Bytes of the peak above the peak live bytes."""
        return self.peak_bytes - self.program.max_live_bytes

    # -- the peak --------------------------------------------------------------------------------------------------

    @cached_property
    def peak_schedule(self) -> Schedule:
        """The schedule with the highest peak: the train step's, or one of a test net."""
        return max(self.program.schedules, key=lambda schedule: schedule.max_live_bytes)

    @property
    def peak_instruction(self) -> Instruction:
        return self.peak_schedule.instructions[self.peak_schedule.peak_tick]

    @property
    def peak_residencies(self) -> list[Residency]:
        """The residencies in use at the peak, largest first."""
        return self.peak_schedule.live_at(self.peak_schedule.peak_tick)

    @property
    def peak_bytes_by_kind(self) -> dict[str, int]:
        """Aligned bytes in use at the peak, by kind of buffer, largest first."""
        bytes_of: Counter[str] = Counter()
        for r in self.peak_residencies:
            bytes_of[kind_of(self.peak_schedule.graph, r)] += aligned(r.nbytes)
        return dict(bytes_of.most_common())

    # -- actions of the plan ---------------------------------------------------------------------------------------

    @property
    def recomputed_ops(self) -> int:
        """Number of ops that run a second time."""
        return sum(instruction.is_recompute for instruction in self.program.train.instructions)

    @property
    def offloaded_bytes(self) -> int:
        """Bytes that a step copies to the host."""
        train = self.program.train
        return sum(
            train.residencies[instruction.reads[0]].nbytes
            for instruction in train.instructions
            if instruction.kind == OFFLOAD
        )


def kind_of(graph: Graph, residency: Residency) -> str:
    """The kind of the buffer, or "workspace" for the workspace of an op."""
    buffer = graph.buffers.get(residency.buffer)
    return buffer.kind if buffer is not None else "workspace"
