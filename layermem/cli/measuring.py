"""--measure: plan with times that are measured first, on the device and within the budget."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from layermem.cli.options import Options, device_of
from layermem.utils.files import check_folder, write_atomically

if TYPE_CHECKING:
    from layermem.job import Job


def add_measure(parser: Options, *, keeps: bool = True) -> None:
    where = "; --costs then names a file to keep them in" if keeps else ""
    help = f"run some steps on the device, within the budget, and plan with the times of their ops{where}"
    parser.add_argument("--measure", action="store_true", help=help)


def measured_job(arguments: argparse.Namespace, job: Job) -> Job:
    """`job`; with --measure the one with measured costs, which --costs keeps."""
    if not arguments.measure:
        return job
    from layermem.solver.measure import measure_step

    check_folder(arguments.costs)
    plan, strategy = (getattr(arguments, name, None) for name in ("load", "strategy"))
    measured = measure_step(job, device_of(arguments), strategy, arguments.budget, plan).job_with_costs()
    keep_costs(arguments, measured)
    return measured


def keep_costs(arguments: argparse.Namespace, job: Job) -> None:
    """Write the measured costs of `job` to --costs, if it is given."""
    if arguments.costs:
        from layermem.solver.measure import costs_text

        write_atomically(arguments.costs, costs_text(job).encode())
