"""Records in the log of `train` how a run was started, and rebuilds its job from the log, which `watch` plans again.

The record `start` has most of it: solver_file, device, strategy, budget_bytes, host_budget_bytes (report/records.py).
Its field `job` has the rest, job_record(): options of `train` that determine its graphs and its plan.  A log of an
earlier version lacks it; its run is assumed to have no such options, and is refused if its fingerprint differs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from layermem.cli.options import hints_of, read_shapes, stages
from layermem.errors import InputError

if TYPE_CHECKING:
    from layermem.planning.job import Job
    from layermem.planning.spill import Spill
    from layermem.report.plan_report import PlanReport
    from layermem.report.records import Record, Value

PLANNED = ("solver_file", "device", "strategy", "slices", "budget_bytes", "host_budget_bytes", "fingerprint", "job")


def job_record(arguments: argparse.Namespace, spill: Spill | None) -> dict[str, Value]:
    """Return the field `job`: options of `train`, the folder to which their files are relative, and the spill file."""
    from layermem.planning.hints import WORDS

    hints = hints_of(arguments)
    globs = {name: list(getattr(hints, name)) for name in WORDS.values()}
    return {
        "folder": os.getcwd(),
        "batch": arguments.batch,
        "iter_size": arguments.iter_size,
        "ranks": arguments.group.size,
        "data": arguments.data,
        "inputs": {name: list(shape) for name, shape in read_shapes(arguments.input).items()},
        "level": arguments.level,
        "stages": list(stages(arguments.stage)),
        "hints": globs,
        "spill": None if spill is None else spill.values,
        "costs": arguments.costs,
        "plan": arguments.load,
        "precision": arguments.precision,
        "storage": arguments.storage,
        "allow_python": arguments.allow_python,
    }


def plan_key(start: Record) -> list[Value]:
    """Return the fields of a record `start` that determine the plan of its run: equal ones have the same plan."""
    return [start.get(name) for name in PLANNED]


def plan_run(start: Record, *, allow_python: bool) -> PlanReport:
    """Plan the run that `start` describes again, from the files that it names.

    The working folder becomes that of the run.  InputError for files that are gone or have changed since the run.

    allow_python   import and run the classes of Python layers; a log cannot allow that
    """
    from layermem.report.plan_report import evaluate

    options = start.get("job")
    given: dict[str, Any] = options if isinstance(options, dict) else {}
    _enter(str(given.get("folder") or os.curdir))
    saved, budget_bytes = given.get("plan"), start.get("budget_bytes")
    try:
        job = _job(start, given, allow_python)
        if not saved:
            job = job.in_slices(str(start.get("slices") or "")).with_fingerprint(str(start.get("fingerprint")))
        elif isinstance(saved, str):
            job = job.with_plan(saved)[0]
        if job.graphs[0].fingerprint != start.get("fingerprint"):
            why = "they have changed since it began" if given else "a log of an earlier version lacks their options"
            raise InputError(f"the files that it names make another training step than that of the run ({why})")
        return evaluate(job, None if saved else str(start["strategy"]), budget_bytes, saved)  # type: ignore[arg-type]
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise InputError(f"what it says of its run cannot be read ({error}); use a log as `train` wrote it") from None


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(
            f"the folder of its run cannot be entered ({error.strerror}); restore it", path=folder
        ) from None


def differences(start: Record, report: PlanReport) -> Iterable[str]:
    """Yield sentences about differences between a plan and the run of `start`."""
    from layermem.utils.units import format_bytes

    peak_bytes = start.get("predicted_peak_bytes")
    if report.job.graphs[0].fingerprint != start.get("fingerprint"):
        yield "The run trains another net, or with other shapes, than this plan."
    elif isinstance(peak_bytes, int) and peak_bytes != report.peak_bytes:
        yield (
            f"The plan of the run has another peak, {format_bytes(peak_bytes)}: it has another budget or strategy, "
            "other costs, was made by another version, or a faster one has been found since."
        )


def _job(start: Record, given: dict[str, Any], allow_python: bool) -> Job:
    from layermem.backends.base import get_device
    from layermem.graph.net import NetOptions
    from layermem.planning.hints import Hints
    from layermem.proto.read import read_solver
    from layermem.solver.checks import check_solver
    from layermem.solver.jobs import StepOptions, solver_job
    from layermem.solver.noise import nets_of_run
    from layermem.solver.sharing import ranks_of, with_iter_size

    if not isinstance(start.get("solver_file"), str):
        raise InputError("the log does not name the solver of its run; give --solver F or --net F")
    file = with_iter_size(read_solver(str(start["solver_file"])), given.get("iter_size"))
    check_solver(file)
    ranks = ranks_of(file, given.get("ranks", 1))
    settings = {name: given[name] for name in ("precision", "storage") if given.get(name)}
    device = get_device(str(start.get("device")), **settings)
    state = given.get("level", 0), given.get("stages") or (), allow_python
    nets = nets_of_run(file, NetOptions.of(given.get("batch"), given.get("inputs"), *state), given.get("data"))
    globs = {name: tuple(words) for name, words in (given.get("hints") or {}).items()}
    hints = Hints(**globs, host_budget_bytes=start.get("host_budget_bytes"))  # type: ignore[arg-type]
    spill = _spill(given.get("spill"), device.title)
    return solver_job(file, nets, StepOptions(device=device, spill=spill, costs=given.get("costs"), hints=hints), ranks)


def _spill(given: object, device: str) -> Spill | None:
    """Return the spill file of a log, with the rates of its run; a log of an earlier version has only the folder."""
    from layermem.planning.costs import model_costs
    from layermem.planning.spill import Spill

    if isinstance(given, dict):
        return Spill(str(given["folder"]), str(given["file_system"]), float(given["write"]), float(given["read"]))
    rates = model_costs(device).rates
    return Spill(str(given), "unknown", rates.d2h, rates.h2d) if given else None
