"""What a solver plans: its nets, its job and its plan; and plans for other shapes, where these change between batches.

The arena of a plan replaces that of the one before, and parameters and their state are copied over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from layermem.backends.base import Device
from layermem.distributed.group import Group
from layermem.distributed.ranks import Ranks
from layermem.graph.net import NetOptions
from layermem.planning.job import Job
from layermem.proto.read import SolverFile, read_solver
from layermem.report.plan_report import PlanReport, evaluate
from layermem.schedule.program import Program
from layermem.solver import snapshot as snapshots
from layermem.solver.best import BestWeights
from layermem.solver.build import Nets
from layermem.solver.checks import check_rates, check_solver, last_iteration
from layermem.solver.engine import Engine
from layermem.solver.feeds import Shapes, refuse_change
from layermem.solver.jobs import StepOptions, solver_job
from layermem.solver.loss_scale import loss_scale_of
from layermem.solver.measure import ONCE, measure_once, measure_step
from layermem.solver.noise import nets_of_run
from layermem.solver.run_options import RunOptions
from layermem.solver.sharing import check_measurable, ranks_of, with_iter_size
from layermem.utils.files import PathName

MOST_PLANS = 16  # that are kept for shapes of earlier batches


class Planned:
    """The part of a training that makes its plans.

    nets, job, report, program   those of the current shapes
    """

    nets: Nets
    job: Job
    report: PlanReport
    program: Program
    group: Group
    device: Device
    _engine: Engine
    _note: Callable[[str], None]
    _holds_gradients = False  # whether updates are a schedule of their own, by which a user may update too

    def _prepare(
        self, file: SolverFile | PathName, options: NetOptions, step: StepOptions, run: RunOptions
    ) -> PlanReport:
        """Do all preparations that a rank can make, and check, alone; BudgetError if no plan fits."""
        self.file = with_iter_size(file if isinstance(file, SolverFile) else read_solver(file), step.iter_size)
        self.param, self._step = self.file.message, step
        self._plans: dict[str, tuple[Nets, PlanReport]] = {}  # by shapes of the inputs
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
            snapshots.check_states_size(sum(net.state_bytes for net in self.nets.all), self.nets.train)
            snapshots.remove_orphans(self.param.snapshot_prefix)
        job = self._job(self.nets, ranks)
        if step.measure == ONCE:
            job = measure_once(job, self.device, step.strategy, step.budget, step.plan)
        elif step.measure:
            check_measurable(ranks)
            job = measure_step(job, self.device, step.strategy, step.budget, step.plan).job_with_costs()
        report = evaluate(job, step.strategy, step.budget, step.plan)
        report.feasible_program()
        return report

    def _job(self, nets: Nets, ranks: Ranks | None = None) -> Job:
        make = partial(solver_job, self.file, nets, self._step, ranks, holds_gradients=self._holds_gradients)
        job = make()
        while self.device.check_kernels(job.graphs, self._note):
            job = make()
        return job.with_host_budget(self._step.host_budget).with_slices(self._step.slices)

    def _take(self, report: PlanReport) -> None:
        self.program, self.job = report.program, report.job  # in the chosen slices
        self.report = replace(report, search=None)  # without the caches of the planners

    def _change_shapes(self, number: int, shapes: Shapes) -> None:
        """Go on with the plan for other shapes of the inputs of net `number`, within the same budget."""
        if self._step.plan is not None or self._step.measure is True or self.job.costs.is_kept:
            refuse_change(number, shapes)
        budget, strategy = self.report.budget_bytes, self._step.strategy
        self._plans[_shapes_of(self.nets)] = self.nets, self.report
        changed = self.nets.all[number].reshaped(shapes)
        nets = replace(self.nets, all=(*self.nets.all[:number], changed, *self.nets.all[number + 1 :]))
        key = _shapes_of(nets)
        if key not in self._plans:
            report = evaluate(self._job(nets), strategy, budget)
            report.feasible_program()
            self._plans[key] = nets, report
            if len(self._plans) > MOST_PLANS:
                del self._plans[next(iter(self._plans))]
        self.nets, report = self._plans[key]
        self._take(report)
        self._engine.rebind(self.nets, self.job.graphs, self.program)


def _shapes_of(nets: Nets) -> str:
    return str([net.input_shapes() for net in nets.all])
