"""What is known of a training step before it runs: a job, and what a strategy makes of it.

job      the graphs that share one arena, with the costs of a device, and what Caffe would take for them
planned  the program beside the baseline, with what a user asks of it: peak, time, the fullest moment
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from layermem.compiler import Compiler, Program
from layermem.errors import BudgetError
from layermem.graph.caffe_bytes import beside, caffe_bytes
from layermem.graph.net import Net
from layermem.graph.ops import PARAMETER, Graph
from layermem.planning.base import Hints, Plan, default_strategy
from layermem.planning.bounds import least_bytes, least_seconds
from layermem.planning.costs import Costs
from layermem.planning.strategies import get_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.ir import Instruction, Residency, Schedule
from layermem.schedule.simulate import Timeline
from layermem.utils.units import FREE, aligned, parse_bytes

ROUNDING = 1e-9  # share of a step by which sums of the same seconds may differ


@dataclass(frozen=True)
class Job:
    """What is to be planned.  `nets` are those of `graphs`, the train net first; the first graph trains.

    histories   blobs of solver state per parameter
    free_bytes  asks the device what the budget `free` stands for
    """

    title: str
    nets: tuple[Net, ...]
    graphs: tuple[Graph, ...]
    costs: Costs
    histories: int = 1
    hints: Hints = field(default_factory=Hints)
    free_bytes: Callable[[], int] | None = None

    @cached_property
    def baseline_bytes(self) -> int:
        """Arena under strategy `caffe`: what percentages are taken of.  It has no gaps, so nothing need be placed."""
        arena_planner = ArenaPlanner(self.graphs, self.costs)
        plan = get_strategy("caffe").make(self.graphs[0], self.costs, None, arena_planner, Hints())
        return arena_planner.live_bytes(plan)

    @cached_property
    def baseline_seconds(self) -> float:
        """Every op once, and no copies."""
        return sum(self.costs.op(op) for op in self.graphs[0].ops)

    @cached_property
    def bvlc_bytes(self) -> int:
        """What BVLC Caffe itself would take."""
        train = caffe_bytes(self.nets[0], histories=self.histories).total
        return train + sum(beside(caffe_bytes(net)) for net in self.nets[1:])

    def budget(self, given: str | int | None) -> int | None:
        """Bytes of a budget as a user writes it; a percentage is of the baseline, `free` what the device has now."""
        if given == FREE and self.free_bytes is not None:
            return self.free_bytes()
        if not isinstance(given, str):
            return given
        return parse_bytes(given, whole=self.baseline_bytes if "%" in given else None)

    def compiler(self, strategy: str, plan: Plan | None = None) -> Compiler:
        return Compiler(self.graphs, strategy, costs=self.costs, plan=plan, hints=self.hints)


@dataclass(frozen=True)
class PlanReport:
    """A program for a job under a budget (bytes, None without).

    If nothing fits, `refused` says why, and the program is the leanest of the strategy.
    """

    job: Job
    strategy: str
    budget: int | None
    program: Program
    refusal: BudgetError | None = None
    asked: Compiler | None = None  # what made the program; another one would give the same answers

    @property
    def compiler(self) -> Compiler:
        return self.asked or self.job.compiler(self.strategy)

    @property
    def feasible(self) -> bool:
        return self.refusal is None

    def explain_refusal(self) -> BudgetError:
        """`refused`, with the strategies that would fit."""
        assert self.refusal is not None
        return self.compiler.with_others(self.refusal)

    @property
    def peak_bytes(self) -> int:
        return self.program.arena_bytes

    @cached_property
    def minimum_bytes(self) -> int:
        """The least budget that the strategy fits."""
        return min(self.peak_bytes, self.compiler.min_memory_program.arena_bytes)

    @cached_property
    def timeline(self) -> Timeline:
        return self.program.timeline()

    @property
    def seconds(self) -> float:
        return self.timeline.seconds

    @property
    def overhead(self) -> float:
        """Share of the baseline's time by which a step is longer."""
        return self.seconds / self.job.baseline_seconds - 1 if self.job.baseline_seconds else 0.0

    @cached_property
    def bound_bytes(self) -> int:
        """Bytes below which no plan at all can go."""
        return max(least_bytes(graph) for graph in self.job.graphs)

    @property
    def available_bytes(self) -> int:
        """Bytes that a plan might have taken: the budget, or what this one takes."""
        return max(self.peak_bytes, self.budget or 0)

    @cached_property
    def bound_seconds(self) -> float:
        """Seconds below which no plan in the same room can go."""
        graph, costs = self.job.graphs[0], self.job.costs
        every_op_once = sum(costs.op(op) for op in graph.with_fused_updates.ops)  # nobody is faster
        if self.seconds < every_op_once * (1 + ROUNDING):
            return every_op_once
        return least_seconds(graph, costs, self.available_bytes)

    @property
    def parameter_bytes(self) -> int:
        named = {b.name: b.nbytes for g in self.job.graphs for b in g.buffers.values() if b.kind == PARAMETER}
        return sum(named.values())

    @property
    def device(self) -> str:
        return self.job.graphs[0].device

    @property
    def fragmentation_bytes(self) -> int:
        """Bytes by which the peak is above what is in use at the fullest moment."""
        return self.peak_bytes - self.program.max_live_bytes

    # -- the fullest moment ----------------------------------------------------------------------------------------

    @cached_property
    def peak_schedule(self) -> Schedule:
        """The schedule with the highest peak: the train step's, or that of a test net."""
        return max(self.program.schedules, key=lambda schedule: schedule.max_live_bytes)

    @property
    def peak_instruction(self) -> Instruction:
        return self.peak_schedule.instructions[self.peak_schedule.peak_tick]

    @property
    def peak_residencies(self) -> list[Residency]:
        """What is in use at the fullest moment, largest first."""
        return self.peak_schedule.live_at(self.peak_schedule.peak_tick)

    @property
    def peak_bytes_by_kind(self) -> dict[str, int]:
        """Aligned bytes in use at the fullest moment, by kind of buffer, largest first."""
        bytes_of: Counter[str] = Counter()
        for r in self.peak_residencies:
            bytes_of[kind_of(self.peak_schedule.graph, r)] += aligned(r.nbytes)
        return dict(bytes_of.most_common())

    # -- what the plan does ----------------------------------------------------------------------------------------

    @property
    def recomputed_ops(self) -> int:
        """Ops that run a second time."""
        return sum(instruction.is_recompute for instruction in self.program.train.instructions)

    @property
    def offloaded_bytes(self) -> int:
        """Bytes that a step copies to the host."""
        train = self.program.train
        return sum(
            train.residencies[instruction.reads[0]].nbytes
            for instruction in train.instructions
            if instruction.kind == "offload"
        )


def kind_of(graph: Graph, residency: Residency) -> str:
    """Kind of the buffer, or "workspace" for the scratch of one op."""
    buffer = graph.buffers.get(residency.buffer)
    return buffer.kind if buffer is not None else "workspace"


def evaluate(
    job: Job, strategy: str | None = None, budget: str | int | None = None, plan: Plan | None = None
) -> PlanReport:
    """`job` under `strategy` and `budget`, or by a plan that was made before.

    A budget that is too small is an answer too, not an error; one of host memory is a BudgetError.
    """
    nbytes = job.budget(budget)
    name = plan.strategy if plan is not None else strategy or default_strategy(nbytes)
    compiler = job.compiler(name, plan)
    try:
        return PlanReport(job, name, nbytes, compiler.program(nbytes), asked=compiler)
    except BudgetError as error:
        if error.host:
            raise
        return PlanReport(job, name, nbytes, compiler.min_memory_program, error, compiler)
