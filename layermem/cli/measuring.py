"""--measure: planning with times that are first measured on the device within the budget."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from layermem.cli.options import TIMES, Options, device_of, print_warnings, titled
from layermem.utils.files import write_atomically

if TYPE_CHECKING:
    from layermem.planning.job import Job


def add_measure(parser: Options, *, keeps: bool = True) -> None:
    parser = titled(parser, TIMES)
    help = "run some steps on the device, within the budget, and plan with the times of their ops"
    if not keeps:
        parser.add_argument("--measure", action="store_true", help=help)
        return
    parser.add_argument(
        "--measure",
        action=argparse.BooleanOptionalAction,
        default=None,
        help=f"{help}. On cuda, `train` measures once for each GPU and step, and later plans use these times "
        "(`layermem docs gpus`): --no-measure turns that off",
    )
    parser.add_argument("--save-costs", metavar="costs.csv", help="write the times of --measure to a file, for --costs")


def measured_job(arguments: argparse.Namespace, job: Job) -> Job:
    """Return `job` with its costs: measured with --measure, and written to --save-costs; otherwise those kept for its
    GPU, unless --no-measure."""
    from layermem.solver.measure import keep_measured, measure_step, with_kept_costs

    if not arguments.measure:
        if arguments.measure is None and arguments.costs is None and job.ranks.size == 1:
            job, problem = with_kept_costs(job)
            if problem is not None:
                print_warnings([f"{problem}; `--measure` and `layermem train` measure this step again"])
        return job
    plan, strategy = (getattr(arguments, name, None) for name in ("load", "strategy"))
    measured = measure_step(job, device_of(arguments), strategy, arguments.budget, plan).job_with_costs()
    save_costs(arguments, measured)
    return keep_measured(measured, job)


def save_costs(arguments: argparse.Namespace, job: Job) -> None:
    """Write the measured costs of `job` to --save-costs if given."""
    if arguments.save_costs:
        from layermem.solver.measure import costs_text

        write_atomically(arguments.save_costs, costs_text(job).encode())
