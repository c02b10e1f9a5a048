"""Programs for ranges of the layers of a net, compiled when they are needed, in one arena that keeps the parameters.

A program is bound to the existing arena if it fits and keeps every persistent buffer at its offset.  Otherwise a new
arena replaces it, and the parameters are copied over through the memory of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from layermem.backends.base import Device
from layermem.backends.registry import StepContext
from layermem.errors import InputError
from layermem.graph.layer_ranges import BACKWARD_HOLD, FORWARD_HOLD, LayerRange, range_graph
from layermem.graph.net import Net
from layermem.graph.ops import FORWARD
from layermem.ops import FP32
from layermem.planning.hints import Hints
from layermem.planning.job import Job, resolve_costs, resolve_hints, title_of
from layermem.proto.blobs import Blob
from layermem.report.plan_report import PlanReport, evaluate
from layermem.runtime.held import Held
from layermem.runtime.runner import Runner
from layermem.schedule.ir import Schedule
from layermem.solver.jobs import StepOptions, net_job
from layermem.solver.parameters import Parameters

Array = npt.NDArray[Any]


class Bound:
    """The program of a range of layers, bound to the arena; its instructions 0 .. split - 1 are the forward part."""

    def __init__(self, layer_range: LayerRange, report: PlanReport, runner: Runner):
        self.layer_range, self.report, self.runner = layer_range, report, runner
        self.schedule: Schedule = report.program.train
        instructions = self.schedule.instructions
        first_runs = [i.tick for i in instructions if i.op is not None and i.op.kind == FORWARD and not i.is_recompute]
        self.split = max(first_runs) + 1
        self._forward, self._backward = (Held(runner, 0, name) for name in (FORWARD_HOLD, BACKWARD_HOLD))
        assert not any(i.op is not None and i.op.kind != FORWARD for i in instructions[: self.split])

    def run_forward(self) -> None:
        self.runner.context["results"].clear()
        end = self.split if self.layer_range.backward is not None else len(self.schedule.instructions)
        self.runner.executors[0].run_part(0, end)

    def run_backward(self) -> None:
        self.runner.executors[0].run_part(self.split, len(self.schedule.instructions))

    @property
    def results(self) -> Mapping[str, Array]:
        """The outputs that the last run copied to the host, by buffer."""
        return self.runner.context["results"]

    def held(self, *, backward: bool) -> Held:
        """The held buffers after the forward part, or after the whole program."""
        return self._backward if backward else self._forward


class Session:
    """The programs and the arena of one net.

    reports   the plans so far, by range of layers
    earlier   a session of the same net in other shapes, which ends; gradients of parameters go on from it
    context   values that ops read at run time
    runner    the runner that made the arena; None before the first program is bound
    """

    def __init__(
        self,
        net: Net,
        device: Device,
        step: StepOptions,
        seed: int,
        reports: dict[LayerRange, PlanReport],
        earlier: Session | None = None,
    ):
        net.check_runnable(device.name, device.implements)
        if device.storage != FP32:
            what = f"is run by hand, where blobs are in fp32; leave the storage {device.storage} out"
            raise InputError(what, path=str(net.path))
        self.net, self.device, self.seed = net, device, seed
        self.step = replace(step, device=device)
        self.context: StepContext = {"seed": seed, "step": 0, "iteration": 0, "rate": 0.0}
        self.runner: Runner | None = None
        self.initial: list[Mapping[str, Blob]] = []  # initial values that replace those of the fillers
        self.on_new_arena: Callable[[], None] = lambda: None  # called before the arena is replaced
        self._gradients: bool = earlier is not None and earlier._gradients
        self._reports = reports
        self._sums: Mapping[str, Array] = {}  # gradients of parameters that go on from `earlier`
        if earlier is not None and earlier.runner is not None:
            diffs = [name for name in earlier.runner.persistent if name.endswith(".diff")]
            self._sums = {name: earlier.runner.read(name) for name in diffs}
        self._bound: dict[LayerRange, Bound] = {}
        self._budget_bytes: int | None = None

    def report(self, layer_range: LayerRange) -> PlanReport:
        """The plan of `layer_range`; BudgetError if it does not fit."""
        if layer_range not in self._reports:
            has_gradients = self._gradients or layer_range.backward is not None  # bind() adds them for a backward pass
            graph = range_graph(self.net, self.device, layer_range, gradients=has_gradients)
            hints = resolve_hints(Hints(), self.net, self.device.default_host_bytes())
            costs = resolve_costs(None, self.device.title, self.device.gpu)
            job = Job(title_of(self.net), (self.net,), (graph,), costs, 0, hints, self.device.free_bytes)
            job = job.with_host_budget(self.step.host_budget)
            report = evaluate(job, self.step.strategy, self._resolved_budget())
            report.feasible_program()
            self._reports[layer_range] = report
        return self._reports[layer_range]

    def largest_report(self, layer_range: LayerRange) -> PlanReport:
        """The largest of the plans that share the arena; the plan of `layer_range` before there is any."""
        reports = [bound.report for bound in self._bound.values()] or [self.report(layer_range)]
        return max(reports, key=lambda report: report.peak_bytes)

    def bind(self, layer_range: LayerRange) -> Bound:
        """Return the program of `layer_range`, ready to run; parameters keep their values, at first of the fillers."""
        if layer_range.backward is not None and not self._gradients:
            self._gradients = True
            self._reports.clear()
            self._bound.clear()
        if layer_range not in self._bound:
            report = self.report(layer_range)
            self._bound[layer_range] = Bound(layer_range, report, self._place(report))
        return self._bound[layer_range]

    def need_gradients(self, layer_range: LayerRange) -> None:
        """Ensure that the arena holds gradients of parameters; `layer_range` is bound again if it has none."""
        if not self._gradients:
            self._gradients = True
            self._reports.clear()
            self._bound.clear()
            self.bind(layer_range)

    def _place(self, report: PlanReport) -> Runner:
        """Bind the program to the existing arena if it fits, otherwise to a new one."""
        if self.runner is not None and self.runner.fits(report.program):
            return Runner(report.program, self.device, self.context, memory=self.runner)
        values: dict[str, Array] = {}
        if self.runner is not None:
            values = {name: self.runner.read(name) for name in self.runner.persistent}
            self._bound.clear()
            self.on_new_arena()
            self.runner = None  # freed before the new arena is made, so that there are never two
        runner = Runner(report.program, self.device, self.context)
        if not values:
            parameters = Parameters((self.net,), runner, 0)
            parameters.fill(self.seed)
            for each in self.initial:
                parameters.write(each)
            values = dict(self._sums)
        for name, value in values.items():
            if name in runner.persistent:
                runner.write(name, value)
        self.runner = runner  # set last: an error must not leave a runner without parameters
        return runner

    def close(self) -> None:
        """Release the arena."""
        self._bound.clear()
        self.on_new_arena()
        self.runner = None

    def _resolved_budget(self) -> int | None:
        """The budget in bytes; percentages refer to the baseline of plan() for the net."""
        if self._budget_bytes is None and self.step.budget is not None:
            self._budget_bytes = net_job(self.net, self.step).resolve_budget(self.step.budget)
        return self._budget_bytes
