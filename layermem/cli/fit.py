"""fit: the largest batch, or the deepest residual net, that fits a budget under each strategy."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from layermem.cli.measuring import add_measure
from layermem.cli.options import (
    add_budget,
    add_device,
    add_gpu,
    add_json,
    add_nets,
    add_ranks,
    add_storage,
    add_strategies,
    budget_of,
    device_of,
    make_job,
    net_options,
    print_json,
    print_warnings,
    step_options,
    strategies_text,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import BudgetError, InputError
from layermem.utils.progress import show_progress
from layermem.utils.units import FREE, free_share

if TYPE_CHECKING:
    from layermem.backends.base import Device
    from layermem.planning.job import Job
    from layermem.report.fitting import Fit

EXAMPLE = """\
  layermem examples vgg16 digits resnet20
  layermem fit --net vgg16/train_val.prototxt --budget 8GiB
  layermem fit --solver digits/solver.prototxt --budget 4MiB --max 2000
  layermem fit --net resnet20/train_val.prototxt --budget 400MiB \\
               --grow depth --max 50 --strategies liveness,recompute
"""
PROMISE = """\
The plan of each size that is printed is placed and checked. Where bytes are lost to fragmentation,
smaller sizes are placed one by one.
"""
MAX_SIZE = {"batch": 1_000_000, "depth": 5000}
LEAST_GAIN = 0.01  # of items in a second, that a smaller batch must have to be named
FAMILY = re.compile(r"ResNet-(\d+)( \(CIFAR-10\))?")  # names of the nets in nets/resnet.py


def add_verbs(verbs: Verbs) -> None:
    description = "find the largest batch, or the deepest ResNet, that fits a budget under each strategy"
    parser = add_verb(verbs, "fit", description, EXAMPLE, more=_more)
    add_nets(parser)
    add_device(parser)
    add_storage(parser)
    add_gpu(parser)
    # Refused by combinations.py, because costs hold for one size.
    parser.add_argument("--costs", help=argparse.SUPPRESS)
    add_measure(parser, keeps=False)
    add_budget(parser)
    add_strategies(parser)
    add_ranks(parser)
    parser.add_argument(
        "--grow",
        choices=MAX_SIZE,
        default="batch",
        help="what to grow: the batch (of a recurrent net its sequences) or a ResNet's depth (default: batch)",
    )
    limits = " or ".join(f"{name} {size:,}" for name, size in MAX_SIZE.items())
    parser.add_argument("--max", metavar="N", type=int, help=f"the largest size to try (default: {limits})")
    add_json(parser)
    parser.set_defaults(run=run_fit)


def _more() -> str:
    return f"{PROMISE}\nexit code: 0, or 3 if no strategy fits at any size\n\n{strategies_text()}"


def run_fit(arguments: argparse.Namespace) -> int:
    from layermem.report.comparison import select_strategies
    from layermem.report.fitting import find_fits, jobs_in_slices, largest_first
    from layermem.utils.units import parse_bytes

    arguments.budget = _amount(arguments)
    what: str = arguments.grow
    max_size = MAX_SIZE[what] if arguments.max is None else arguments.max
    if max_size < 1:
        raise InputError(f"--max {max_size} is too small; give 1 or more")
    make, sizes, words = _deeper(arguments, max_size) if what == "depth" else _larger(arguments, max_size)
    make, sizes = jobs_in_slices(make, sizes, arguments.slices, arguments.split_weights, are_batches=what == "batch")
    names = select_strategies(arguments.strategies)
    with show_progress(len(names), "fitting") as show:

        def tell(name: str, size: int, done: int) -> None:
            show(f"{name}: {what} {size}", done)

        fits = find_fits(make, sizes, names, parse_bytes(arguments.budget), tell)
    if arguments.measure:
        fits = largest_first([_measure(fit, device_of(arguments), arguments.budget) for fit in fits])
    if arguments.json:
        print_json(_values(fits, what, words, arguments.budget, arguments.ranks))
    else:
        _print(fits, what, words, arguments, sizes[-1])
    return 0 if any(fit.size for fit in fits) else BudgetError.exit_code


def _amount(arguments: argparse.Namespace) -> str:
    """Return --budget, which must be an amount or free memory of the GPU: a percentage depends on the size."""
    budget = budget_of(arguments)
    if budget is None or budget.endswith("%"):
        raise InputError("fit needs an amount of memory; give --budget, such as --budget 8GiB")
    return budget if not budget.endswith(FREE) else f"{free_share(budget, device_of(arguments).free_bytes())}"


# -- jobs by size ------------------------------------------------------------------------------------------------

MakeJob = Callable[[int], "Job"]
Words = Callable[[int], list[str]]  # size -> options of `plan` for it


def _larger(arguments: argparse.Namespace, max_size: int) -> tuple[MakeJob, range, Words]:
    """Return functions from batch size to job and to options of `plan`, and the sizes to try."""
    from layermem.report.fitting import jobs_by_batch

    step, given = step_options(arguments), net_options(arguments)

    def make(batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> Job:
        return make_job(arguments, replace(given, batch=batch, inputs=shapes), step)

    make_batch, shapes = jobs_by_batch(make, given.inputs or {})

    def words(batch: int) -> list[str]:
        axis_0, by_name = shapes(batch)
        shown = [("--input", f"{name}={','.join(map(str, shape))}") for name, shape in by_name.items()]
        return [*([] if axis_0 is None else ["--batch", str(axis_0)]), *chain.from_iterable(shown)]

    print_warnings(warning for graph in make_batch(1).graphs for warning in graph.warnings)
    return make_batch, range(1, max_size + 1), words


def _deeper(arguments: argparse.Namespace, max_size: int) -> tuple[MakeJob, range, Words]:
    """Return functions from depth to job, in the family of --net, and to no options of `plan` (none sets a depth), and
    the depths to try."""
    from layermem.cli.options import net_of
    from layermem.graph.net import Net, NetOptions
    from layermem.graph.warnings import net_warnings
    from layermem.nets import resnet
    from layermem.planning.job import title_of
    from layermem.proto.read import read_net_text
    from layermem.report.fitting import JOBS_KEPT
    from layermem.solver.jobs import net_job

    if arguments.solver:
        raise InputError("--grow depth needs --net; give the net of the solver")
    base = net_of(arguments, "TRAIN")
    match = FAMILY.fullmatch(base.name)
    if not match:
        raise InputError(
            f"has the name '{base.name}'; --grow depth needs a net that tools/make_net.py resnet wrote, such as that "
            "of `layermem examples resnet50`",
            path=arguments.net,
        )
    print_warnings(net_warnings(base))
    batch = int(title_of(base).rpartition(" x")[2])

    step = step_options(arguments)

    @lru_cache(JOBS_KEPT)
    def make(depth: int) -> Job:
        text = resnet.cifar(depth, batch, 1) if match[2] else resnet.imagenet(depth, resnet.split(depth), batch, 1)
        return net_job(Net(read_net_text(str(text)), 0, NetOptions(stages=("dummy",))), step)

    depths = range(8, max_size + 1, 6) if match[2] else range(38, max_size + 1, 3)
    return make, depths, lambda depth: []


def _measure(fit: Fit, device: Device, budget: str) -> Fit:
    """Plan the size of `fit` again with measured times of its step on the device."""
    from layermem.report.fitting import Fit
    from layermem.report.plan_report import evaluate
    from layermem.solver.measure import measure_step

    if fit.report is None:
        return fit
    job = measure_step(fit.report.job, device, fit.strategy, budget).job_with_costs()
    report = evaluate(job, fit.strategy, budget)
    return Fit(fit.strategy, fit.size, report) if report.feasible else fit


# -- output -------------------------------------------------------------------------------------------------------


def _print(fits: list[Fit], what: str, words: Words, arguments: argparse.Namespace, most: int) -> None:
    from layermem.report.summary import costs_facts, spill_facts
    from layermem.report.tables import print_table
    from layermem.utils.text import wrap
    from layermem.utils.units import format_bytes, format_change, format_seconds, parse_bytes

    lines = []
    for fit in fits:
        if fit.report is None:
            lines.append([fit.strategy, "none", *[""] * (5 if what == "batch" else 4)])
            continue
        size, host_bytes = f">= {fit.size:,}" if fit.size == most else f"{fit.size:,}", fit.report.program.host_bytes
        places = [format_bytes(fit.report.peak_bytes), format_bytes(host_bytes) if host_bytes else ""]
        times = [format_seconds(fit.report.seconds), format_change(fit.report.overhead)]
        times += [f"{fit.items_per_second:,.0f}"] if what == "batch" else []
        lines.append([fit.strategy, size, *places, *times])
    headings = ["strategy", f">{what}", ">peak", ">host", ">time", ">overhead"]
    headings += [">items/s"] if what == "batch" else []
    first = next((fit for fit in fits if fit.report), None)
    device = first.report.target if first and first.report else ""
    file, budget = arguments.solver or arguments.net, arguments.budget
    if arguments.gpu:
        budget = format_bytes(parse_bytes(budget))
    ranks = f", first of {arguments.ranks} ranks" if (arguments.ranks or 1) > 1 else ""
    print_table(headings, lines, title=f"{file}{f' on {device}' if device else ''}, budget {budget}{ranks}")
    if first is None or first.report is None:
        return
    if what == "batch" and (note := _faster(fits)):
        print(wrap(note))
    options, job = words(first.size), first.report.job
    if options and "--batch" not in options:  # a batch of sequences is given by shapes
        print(f"{'plan with':<10}{shlex.join(options)}")
    warnings = (("warning", warning) for warning in job.costs.warnings(job.graphs[0]))
    for label, text in (*costs_facts(job), *spill_facts(job), *warnings):
        print(wrap(f"{label:<12}{text}"))


def _faster(fits: list[Fit]) -> str:
    """A sentence if a smaller batch than the largest, which is that of the first fit, takes less time for each item."""
    largest, fastest = fits[0], max(fits, key=lambda fit: fit.items_per_second)
    if fastest.size == largest.size:
        return ""
    gain = fastest.items_per_second / largest.items_per_second - 1
    if gain < LEAST_GAIN:
        return ""
    what = f"batch {fastest.size:,} with {fastest.strategy}: {gain:.0%} more items/s than batch {largest.size:,}"
    return f"{'faster':<12}{what}"


def _values(fits: list[Fit], what: str, words: Words, budget: str, ranks: int | None) -> dict[str, object]:
    from layermem.utils.units import parse_bytes

    return {
        "budget_bytes": parse_bytes(budget),
        "ranks": ranks or 1,
        "strategies": [
            {
                "strategy": fit.strategy,
                what: fit.size,
                "options": words(fit.size) if fit.size else [],
                "peak_bytes": fit.report.peak_bytes if fit.report else None,
                "host_bytes": fit.report.program.host_bytes if fit.report else None,
                "predicted_seconds": fit.report.seconds if fit.report else None,
                "items_per_second": fit.items_per_second or None if what == "batch" else None,
                "overhead": fit.report.overhead if fit.report else None,
            }
            for fit in fits
        ],
    }
