"""Measures costs on the device: runs the step of a job within its budget, for times to plan it with.

A first plan, by the device's cost model, decides which ops run; all of them are timed.  Other ops, such as an update
that the plan fuses, are timed in a second plan if that also fits the budget; otherwise they keep the time of the model.
 The link is timed last, in a separate arena within the budget; a spill file has separate rates (spill_rates.py).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from layermem.backends.base import Device
from layermem.distributed.network_rates import NetworkRates
from layermem.errors import InputError
from layermem.graph.ops import Graph
from layermem.planning.costs import MIN_SECONDS, Costs, as_written, write_costs
from layermem.planning.job import Budget, Job
from layermem.planning.kept_costs import keep_costs, read_kept
from layermem.planning.plan import Plan
from layermem.planning.registry import Choice
from layermem.report.plan_report import evaluate
from layermem.schedule.program import Program
from layermem.solver.benchmark import LINK_BYTES, Benchmark, link
from layermem.utils.files import PathName
from layermem.utils.steps import report_step
from layermem.utils.units import format_bytes

ONCE = "once"  # measure unless costs are kept
ITERATIONS = 5  # steps to take the median of
MEMORY_SHARE = 0.9  # share of the machine's memory; larger steps are not measured


@dataclass(frozen=True)
class MeasuredStep:
    """`seconds` of every timed op, including all ops of the first `step`, and the link in bytes per second."""

    job: Job
    seconds: Mapping[str, float]
    step: Mapping[str, float]
    d2h: float
    h2d: float

    @property
    def costs(self) -> Costs:
        graph, costs = self.job.of_one_machine, self.job.costs
        rates = replace(costs.rates, d2h=self.d2h, h2d=self.h2d)
        return replace(
            costs,
            rates=rates,
            measured=self.seconds,
            path=None,
            fingerprint=graph.fingerprint,
            net=self.job.title,
            is_kept=False,
        )

    def job_with_costs(self) -> Job:
        return replace(self.job, costs=self.costs)


def with_kept_costs(job: Job) -> tuple[Job, str | None]:
    """`job` with the costs that are kept for its step on its GPU, if there are any; otherwise a note about them."""
    gpu = job.costs.gpu
    if gpu is None:
        return job, None
    graph = job.of_one_machine
    try:
        costs = read_kept(gpu, graph.device, graph.fingerprint, job.wanted_slices)
    except InputError as error:
        return job, str(error)
    return (job if costs is None else replace(job, costs=costs)), None


def keep_measured(measured: Job, job: Job) -> Job:
    """Keep the measured costs of `measured` by GPU and return it; unchanged if the device keeps none, or they cannot be
    kept."""
    gpu = measured.costs.gpu
    if gpu is None:
        return measured
    graph = measured.of_one_machine
    path = keep_costs(costs_text(measured), gpu, graph.device, graph.fingerprint, job.wanted_slices)
    return measured if path is None else replace(measured, costs=replace(measured.costs, path=str(path), is_kept=True))


def measure_once(
    job: Job, device: Device, strategy: Choice | None = None, budget: Budget = None, plan: Plan | PathName | None = None
) -> Job:
    """`job` with the kept costs of its step, which are measured now if this GPU has none yet."""
    if job.costs.gpu is None or job.ranks.size > 1:
        return job
    kept, _ = with_kept_costs(job)
    if kept.costs.is_kept:
        return kept
    return keep_measured(measure_step(job, device, strategy, budget, plan).job_with_costs(), job)


def machine_bytes() -> float:
    """Bytes that a measured run may use on this machine."""
    return MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def measure_step(
    job: Job,
    device: Device,
    strategy: Choice | None = None,
    budget: Budget = None,
    plan: Plan | PathName | None = None,
    *,
    iterations: int = ITERATIONS,
    warm_seconds: float = 0.0,
) -> MeasuredStep:
    """Run steps of `job` on `device` within `budget`; BudgetError if no plan fits it.

    strategy, plan   as for evaluate()
    warm_seconds     duration of whole steps before ops are timed
    """
    report = evaluate(job, strategy, budget, plan)
    program, job = report.feasible_program(), report.job if report.slices or report.not_fused else job
    spill = job.costs.spill
    folder = None if spill is None else Path(spill.folder)
    _check_memory(program, device, spills=spill is not None)
    step = _time_ops(job, program, device, iterations, folder, warm_seconds)
    seconds = step
    for more in ({"strategy": "liveness"}, {"plan": _plan_with_fused_updates(job.graphs[0])}):
        wanted = {op.name for op in (*job.graphs[0].ops, *job.graphs[0].fused_updates)}
        if wanted - seconds.keys() and (other := evaluate(job, budget=budget, **more)).feasible:
            seconds = _time_ops(job, other.program, device, iterations, folder, warm_seconds) | seconds
    limit = LINK_BYTES if report.budget_bytes is None else report.budget_bytes
    d2h, h2d = link(device, min(LINK_BYTES, limit)) if spill is None else (spill.write, spill.read)
    report_step("measured %s: %d ops, %d steps", job.title, len(seconds), iterations)
    kept = {name: max(as_written(each), MIN_SECONDS) for name, each in seconds.items()}
    return MeasuredStep(job, kept, step, as_written(d2h), as_written(h2d))


def costs_text(job: Job, network: NetworkRates | None = None) -> str:
    """The content of a `costs.csv` with the measured costs of `job`, and of the network between ranks."""
    rates = job.costs.rates
    between = None if network is None else (network.net, network.latency)
    return write_costs(
        job.costs.measured,
        d2h=rates.d2h,
        h2d=rates.h2d,
        net=job.title,
        graph=job.of_one_machine,
        network=between,
        gpu=job.costs.gpu,
        spill=None if job.costs.spill is None else job.costs.spill.file_system,
    )


def _time_ops(
    job: Job, program: Program, device: Device, iterations: int, spill: Path | None, warm_seconds: float
) -> dict[str, float]:
    """Seconds of each op; the arena is freed on return."""
    benchmark = Benchmark(job.nets[0], program, device, spill=spill)
    benchmark.warm_up(warm_seconds)
    seconds = benchmark.ops(iterations)
    del benchmark
    gc.collect()
    return seconds


def _check_memory(program: Program, device: Device, *, spills: bool) -> None:
    needed = (0 if spills else program.host_bytes) + (program.arena_bytes if device.shares_host_memory else 0)
    if needed > machine_bytes():
        raise InputError(
            f"measuring takes {format_bytes(needed)} of memory, more than {MEMORY_SHARE:.0%} of this machine's; give a "
            "smaller --budget, or --costs measured on a machine that has it"
        )


def _plan_with_fused_updates(graph: Graph) -> Plan:
    """A plan that runs every fused update that `graph` offers, so that each is measured."""
    every = graph.with_fused_updates(frozenset(op.name for op in graph.fused_updates))
    return Plan("liveness", tuple(op.name for op in every.ops))
