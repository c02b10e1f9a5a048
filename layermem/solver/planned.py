"""The nets of a solver, with their job and their plan.

A solver makes another plan if the shapes change between batches, or if the user changes the budget while it trains.
The arena of the new plan replaces the old arena; parameters and their state are copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from layermem.backends.base import Device
from layermem.distributed.group import Group
from layermem.distributed.ranks import Ranks
from layermem.errors import BudgetError, GpuLost, InputError, LayermemError
from layermem.graph.net import NetOptions
from layermem.graph.sharing import communication_of
from layermem.planning.job import Budget, Job
from layermem.proto.read import SolverFile, read_solver
from layermem.report import events
from layermem.report.events import Event
from layermem.report.plan_report import PlanReport, evaluate
from layermem.schedule.program import Program
from layermem.solver import snapshot as snapshots
from layermem.solver.best import BestWeights
from layermem.solver.build import Nets
from layermem.solver.checks import check_rates, check_solver, last_iteration
from layermem.solver.engine import Engine
from layermem.solver.feeds import Shapes, refuse_change
from layermem.solver.jobs import StepOptions, free_bytes, solver_job
from layermem.solver.live_budget import LiveBudget
from layermem.solver.loss_scale import loss_scale_of
from layermem.solver.measure import ONCE, measure_once, measure_step
from layermem.solver.noise import nets_of_run, noise_seed
from layermem.solver.progress import Progress
from layermem.solver.run_options import RunOptions
from layermem.solver.sharing import check_measurable, ranks_of, with_iter_size
from layermem.solver.signals import Requests
from layermem.utils.exclusive import exclusive
from layermem.utils.files import PathName
from layermem.utils.mapped_pages import trim_heap

MAX_PLANS = 16  # that are kept for shapes of earlier batches


class Planned:
    """The part of a training that makes its plans.

    nets, job, report, program   those of the current shapes and the current budget
    largest_program   the one of the largest arena so far
    """

    nets: Nets
    job: Job
    report: PlanReport
    program: Program
    largest_program: Program
    progress: Progress
    group: Group
    device: Device
    _engine: Engine
    log: Callable[[Event], None]
    _requests: Requests
    _note: Callable[[str], None]
    _is_stepping = False  # whether iterations run, now or in another thread
    _holds_gradients = False  # whether updates are a schedule of their own, by which a user may update too

    def _prepare(
        self, file: SolverFile | PathName, options: NetOptions, step: StepOptions, run: RunOptions
    ) -> PlanReport:
        """Do all preparations that a rank can make, and check, alone; BudgetError if no plan fits."""
        self.file = with_iter_size(file if isinstance(file, SolverFile) else read_solver(file), step.iter_size)
        self.param, self._step = self.file.message, step
        self._plans: dict[str, tuple[Nets, Job, PlanReport]] = {}  # by shapes of the inputs
        self._budget = LiveBudget(step.budget, run.budget_file, follows=run.follow_free)
        budget = self._budget.given
        self.loss_scale = loss_scale_of(self.device.storage, run.loss_scale)
        check_solver(self.file)
        ranks = ranks_of(self.file, self.group.size, self.group.rank)
        self.max_iter = last_iteration(self.file, run.iterations)
        check_rates(self.file, self.max_iter)
        self.nets = nets_of_run(self.file, options, run.data)
        self.best = BestWeights(self.file, self.nets.tests)
        if self.group.is_first and snapshots.saves(self.param):
            snapshots.check_prefix(self.param.snapshot_prefix)
            snapshots.check_size(self.nets.train, self.param)
            snapshots.check_names(self.nets.train, self.param)
            snapshots.check_states_size(sum(net.state_bytes for net in self.nets.all), self.nets.train)
            snapshots.remove_orphans(self.param.snapshot_prefix)
        job = self._job(self.nets, ranks)
        if step.measure == ONCE:
            job = measure_once(job, self.device, step.strategy, budget, step.plan)
        elif step.measure:
            check_measurable(ranks)
            job = measure_step(job, self.device, step.strategy, budget, step.plan).job_with_costs()
        report = evaluate(job, step.strategy, budget, step.plan)
        report.feasible_program()
        self._source, self.largest_program = replace(job), report.program  # a job without what planning has cached
        return report

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A context of a run of all ranks; InputError if another one writes snapshots of this prefix."""
        with ExitStack() as stack:
            if snapshots.saves(self.param):
                run = snapshots.only_run(self.param.snapshot_prefix) if self.group.is_first else nullcontext()
                self.group.agree(lambda: stack.enter_context(run))
            yield

    def _job(self, nets: Nets, ranks: Ranks | None = None) -> Job:
        make = partial(solver_job, self.file, nets, self._step, ranks, holds_gradients=self._holds_gradients)
        job = make()
        while self.device.check_kernels(job.unsliced, self._note):
            job = make()
        return job

    def _take(self, report: PlanReport) -> None:
        self.program, self.job = report.program, report.job  # in the chosen slices
        self.report = replace(report, search=None)  # without the caches of the planners
        self.largest_program = max(self.largest_program, self.program, key=lambda program: program.arena_bytes)

    def _engine_of(self, run: RunOptions, folder: PathName | None) -> Engine:
        """The engine of the first plan; `folder` is that of a spill."""
        engine = Engine(
            self.nets,
            self.param,
            self.job.graphs,
            self.program,
            self.device,
            spill=None if folder is None else Path(folder),
            poison=run.poison,
            timed=run.timed,
            noise=noise_seed(run.data),
            group=self.group,
            loss_scale=self.loss_scale,
        )
        if self.group.size == 1:
            engine.on_change = self._change_shapes
        return engine

    def _change_shapes(self, number: int, shapes: Shapes) -> None:
        """Go on with the plan for other shapes of the inputs of net `number`, within the same budget."""
        if self._step.plan is not None or self._step.measure is True or self.job.costs.is_kept:
            refuse_change(number, shapes)
        budget, strategy = self.report.budget_bytes, self._step.strategy
        self._plans[_shapes_of(self.nets)] = self.nets, self._source, self.report
        changed = self.nets.all[number].reshaped(shapes)
        nets = replace(self.nets, all=(*self.nets.all[:number], changed, *self.nets.all[number + 1 :]))
        key = _shapes_of(nets)
        if key not in self._plans:
            job = self._job(nets)
            report = evaluate(job, strategy, budget)
            report.feasible_program()
            self._plans[key] = nets, replace(job), report
            if len(self._plans) > MAX_PLANS:
                del self._plans[next(iter(self._plans))]
        self.nets, self._source, report = self._plans[key]
        self._take(report)
        self._engine.rebind(self.nets, self.job.graphs, self.program)

    # -- another budget ----------------------------------------------------------------------------------------

    def set_budget(self, budget: Budget) -> None:
        """Plan anew for `budget`, and go on with that plan: now, or before the next iteration if this is called by a
        callback or while another thread trains.  All ranks call it.

        BudgetError or InputError if that cannot be; then the plan stays.  While iterations run, the log has the reason.
        """
        self._budget.set(budget)
        if self._is_stepping:
            self._requests.add("budget")
        elif refusal := self._change_budget():
            raise refusal

    def _follow_budget(self) -> None:
        """Look at the budget, and change the plan if this was requested here or on another rank."""
        if self._budget.is_due(self._resolve_budget, self.report.budget_bytes, self.report.peak_bytes):
            self._requests.add("budget")
        if "budget" in self._requests:
            self._requests.discard("budget")
            self._change_budget()

    def _resolve_budget(self, budget: Budget) -> int | None:
        """The bytes of a budget, for an arena in place of the one in use."""
        job, held_bytes = self._source, self._engine.runner.held_bytes
        free = partial(free_bytes, self.device, job.nets, job.graphs, held_bytes=held_bytes)
        return replace(job, free_bytes=free).resolve_budget(budget)

    @exclusive
    def _change_budget(self) -> LayermemError | None:
        """Go on with the plan for the budget that the user states now, on all ranks or on none; the reason if the plan
        stays."""
        before, began, refusal = self.report, time.monotonic(), None
        try:
            report = self.group.agree(self._plan_for_budget)
            if any(self.group.gather(report is not before)):
                trim_heap()
                self._engine.rebind(self.nets, report.job.graphs, report.program)
                self._plans.clear()
                self._take(report)
        except LayermemError as error:
            if isinstance(error, GpuLost) or not self._engine.runner.executors:  # nor is there memory for the old plan
                raise
            refusal = error
        trim_heap()
        is_own = isinstance(refusal, BudgetError) and not (refusal.is_reported or refusal.host)
        self._budget.planned(time.monotonic() - began, getattr(refusal, "minimum_bytes", 0) if is_own else 0)
        reason = None if refusal is None else refusal.lines[0]
        self.log(events.Budgeted(self.progress.iteration, before.budget_bytes, self.report, reason))
        return refusal

    def _plan_for_budget(self) -> PlanReport:
        """The plan for the budget that the user states now, which is the current one if the bytes are the same."""
        budget_bytes = self._budget.next_bytes(self._resolve_budget)
        if budget_bytes == self.report.budget_bytes:
            return self.report
        report = evaluate(self._source, self._step.strategy, budget_bytes, self._step.plan)
        self._source = replace(self._source)
        if report.refusal is not None:
            raise report.refusal
        if self.group.size > 1 and communication_of(report.job.graphs) != communication_of(self.job.graphs):
            raise InputError(
                "the plan for this budget has other row bands, which ranks cannot change while they train; "
                "snapshot, and resume with this budget"
            )
        return report


def _shapes_of(nets: Nets) -> str:
    return str([net.input_shapes() for net in nets.all])
