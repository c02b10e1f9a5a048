"""fit: the largest batch, or the deepest residual net, that fits a budget under each strategy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from layermem.cli.measuring import add_measure
from layermem.cli.old_names import stages
from layermem.cli.options import (
    Verbs,
    add_budget,
    add_device,
    add_gpu,
    add_json,
    add_nets,
    add_ranks,
    add_storage,
    add_strategies,
    add_verb,
    budget_of,
    device_of,
    hints_of,
    print_json,
    print_warnings,
    ranks_options,
    read_shapes,
    solver_job,
    strategies_text,
)
from layermem.cli.progress import show_progress
from layermem.errors import BudgetError, InputError
from layermem.utils.units import FREE, free_share

if TYPE_CHECKING:
    from layermem.backends.base import Device
    from layermem.graph.net import Net
    from layermem.job import Job
    from layermem.report.fitting import Fit

EXAMPLE = """\
  layermem examples vgg16 digits resnet20
  layermem fit --net vgg16/train_val.prototxt --budget 8GiB
  layermem fit --solver digits/solver.prototxt --budget 4MiB --max 2000
  layermem fit --net resnet20/train_val.prototxt --budget 400MiB \\
               --grow depth --max 50 --strategies liveness,recompute
"""
MAX_SIZE = {"batch": 1_000_000, "depth": 5000}
FAMILY = re.compile(r"ResNet-(\d+)( \(CIFAR-10\))?")  # names of the nets in nets/resnet.py
JOBS_CACHED = 12  # jobs of the last sizes, which strategies share


def add_verbs(verbs: Verbs) -> None:
    description = "find the largest batch, or the deepest ResNet, that fits a budget under each strategy"
    parser = add_verb(verbs, "fit", description, EXAMPLE, more=_more)
    add_nets(parser)
    add_device(parser)
    add_storage(parser)
    add_gpu(parser)
    parser.add_argument("--costs", help=argparse.SUPPRESS)  # refused by combinations.py: it is of one size
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
    return f"exit code: 0, or 3 if no strategy fits at any size\n\n{strategies_text()}"


def run_fit(arguments: argparse.Namespace) -> int:
    from layermem.report.comparison import select_strategies

    arguments.budget = _amount(arguments)
    what: str = arguments.grow
    max_size = MAX_SIZE[what] if arguments.max is None else arguments.max
    if max_size < 1:
        raise InputError(f"--max {max_size} is too small; give 1 or more")
    make, sizes = _deeper(arguments, max_size) if what == "depth" else _larger(arguments, max_size)
    make, sizes = _sliced(arguments, make, sizes)
    names = select_strategies(arguments.strategies)
    with show_progress(len(names), "fitting") as show:

        def show_size(name: str, size: int, done: int) -> None:
            show(f"{name}: {what} {size}", done)

        fits = _fits(names, make, sizes, arguments, show_size)
        if arguments.measure:
            fits = [_measure(fit, device_of(arguments), arguments.budget) for fit in fits]
    fits.sort(key=lambda fit: (-fit.size, fit.report.seconds if fit.report else 0.0))
    if arguments.json:
        print_json(_values(fits, what, arguments.budget, arguments.ranks))
    else:
        _print(fits, what, arguments, sizes[-1])
    return 0 if any(fit.size for fit in fits) else BudgetError.exit_code


def _amount(arguments: argparse.Namespace) -> str:
    """--budget as an amount: free memory of the GPU has one too, a share of each size has none."""
    budget = budget_of(arguments)
    if budget is None or budget.endswith("%"):
        raise InputError("fit needs an amount of memory; give --budget, such as --budget 8GiB")
    return budget if not budget.endswith(FREE) else f"{free_share(budget, device_of(arguments).free_bytes())}"


# -- jobs by size ------------------------------------------------------------------------------------------------

Make = Callable[[int], "Job"]


def _larger(arguments: argparse.Namespace, max_size: int) -> tuple[Make, range]:
    """A function from batch size to job, and the sizes to try.  Of a recurrent net the sequences are the batch."""
    from layermem.api import build_net
    from layermem.graph.warnings import net_warnings
    from layermem.interactive.building import read_source

    given = read_shapes(arguments.input)
    source = read_source(arguments.net) if arguments.net else None  # once for all sizes
    whole: Net | None = None  # the net as it is, if it is recurrent

    def shapes(batch: int) -> tuple[int | None, dict[str, tuple[int, ...]]]:
        if whole is not None:
            return None, whole.shapes_with_streams(batch)
        return batch, {name: (batch, *shape[1:]) for name, shape in given.items()}

    def net_in(batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> Net:
        return build_net(
            source, arguments.phase or "TRAIN", batch=batch, inputs=shapes, level=arguments.level,
            stages=stages(arguments.stage), allow_python=arguments.allow_python,
        )  # fmt: skip

    if arguments.solver:
        device, hints = device_of(arguments), hints_of(arguments)

        @lru_cache(JOBS_CACHED)
        def job(batch: int) -> Job:
            return solver_job(arguments, device, *shapes(batch), hints=hints)

        first = job(1)
        if first.nets[0].shapes_with_streams(1):
            whole = solver_job(arguments, device, None, given, hints=hints).nets[0]
            job.cache_clear()
        print_warnings(first.warnings)
        return job, range(1, max_size + 1)
    smallest = net_in(*shapes(1))  # an error is raised here; during the search an InputError means "too large"
    print_warnings(net_warnings(smallest))
    if smallest.shapes_with_streams(1):
        whole = net_in(None, given)
    return _jobs(arguments, lambda batch: net_in(*shapes(batch))), range(1, max_size + 1)


def _deeper(arguments: argparse.Namespace, max_size: int) -> tuple[Make, range]:
    """A function from depth to job, in the family of --net, and the depths to try."""
    from layermem.cli.options import net_of
    from layermem.graph.net import Net
    from layermem.graph.warnings import net_warnings
    from layermem.job import title_of
    from layermem.nets import resnet
    from layermem.proto.read import read_net_text

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

    def net(depth: int) -> Net:
        text = resnet.cifar(depth, batch, 1) if match[2] else resnet.imagenet(depth, resnet.split(depth), batch, 1)
        return Net(read_net_text(str(text)), 0, stages=("dummy",))

    return _jobs(arguments, net), range(8, max_size + 1, 6) if match[2] else range(38, max_size + 1, 3)


def _jobs(arguments: argparse.Namespace, net: Callable[[int], Net]) -> Make:
    from layermem import api

    device, hints = device_of(arguments), hints_of(arguments)

    @lru_cache(JOBS_CACHED)
    def job(size: int) -> Job:
        return api.job_of(net(size), device=device, hints=hints, **ranks_options(arguments))

    return job


def _sliced(arguments: argparse.Namespace, make: Make, sizes: range) -> tuple[Make, range]:
    """The jobs in the slices of --slices, and the batch sizes that these share equally."""
    from layermem.graph.step_slicer import Slices
    from layermem.job import AUTO_SLICES, NO_SLICES

    slices: str = arguments.slices or NO_SLICES
    if slices == NO_SLICES:
        return make, sizes
    if slices == AUTO_SLICES:
        what = "--slices auto chooses by the batch, which fit looks for"
        raise InputError(f"{what}; name layers and a count, such as --slices whole/4")
    count = Slices.parse(slices).batch_slices if arguments.grow == "batch" else 1
    if sizes[-1] < count:
        raise InputError(f"--max {sizes[-1]} is too small for {count} slices; give {count} or more")
    sizes = range(count, sizes[-1] + 1, count) if count > 1 else sizes
    make(sizes[0]).with_slices(slices)  # during the search an InputError means "too large"

    @lru_cache(JOBS_CACHED)
    def sliced(size: int) -> Job:
        return make(size).with_slices(slices)

    return sliced, sizes


# -- search ------------------------------------------------------------------------------------------------


Show = Callable[[str, int, int], None]  # the strategy and the size that are planned, and the strategies done


def _fits(names: list[str], make: Make, sizes: range, arguments: argparse.Namespace, show: Show) -> list[Fit]:
    """The fits of all strategies.  One that combines others comes last: its search begins at their largest size.  Each
    comes after the one that finds it a good place to begin at."""
    from layermem.planning.registry import candidates_of_auto, get_strategy
    from layermem.report.fitting import Fitting
    from layermem.utils.units import parse_bytes

    fits: dict[str, Fit] = {}
    now = ("", 0)  # the strategy at work, and how many are done

    def make_and_show(size: int) -> Job:
        show(now[0], size, now[1])
        return make(size)

    fitting = Fitting(make_and_show, sizes, parse_bytes(arguments.budget), same_ops=arguments.grow == "batch")

    def fit(name: str, done: int) -> None:
        nonlocal now
        entry = get_strategy(name)
        offloading = (each.name for each in candidates_of_auto() if each.offloads)
        before = next(offloading, "") if entry.combines_others else entry.fit_after if fitting.same_ops else ""
        if before and before not in fits:
            fit(before, done)
        now = (name, done)
        at_least = max((fit.size for fit in fits.values()), default=0) if entry.combines_others else 0
        fits[name] = fitting.fit(name, sizes.index(at_least) + 1 if at_least else 0)

    def turn(name: str) -> tuple[bool, bool]:
        return get_strategy(name).combines_others, bool(get_strategy(name).fit_after)

    for done, name in enumerate(sorted(names, key=turn)):
        if name not in fits:
            fit(name, done)
    return [fits[name] for name in names]


def _measure(fit: Fit, device: Device, budget: str) -> Fit:
    """The same size, with a plan by the times that its own step takes on the device."""
    from layermem.report.fitting import Fit
    from layermem.report.plan_report import evaluate
    from layermem.solver.measure import measure_step

    if fit.report is None:
        return fit
    job = measure_step(fit.report.job, device, fit.strategy, budget).job_with_costs()
    report = evaluate(job, fit.strategy, budget)
    return Fit(fit.strategy, fit.size, report) if report.feasible else fit


# -- output -------------------------------------------------------------------------------------------------------


def _print(fits: list[Fit], what: str, arguments: argparse.Namespace, most: int) -> None:
    from layermem.report.summary import costs_facts
    from layermem.report.tables import print_table
    from layermem.utils.text import wrap
    from layermem.utils.units import format_bytes, format_change, format_seconds, parse_bytes

    rows = []
    for fit in fits:
        if fit.report is None:
            rows.append([fit.strategy, "none", "", "", "", ""])
            continue
        report, host = fit.report, fit.report.program.host_bytes
        size = f">= {fit.size:,}" if fit.size == most else f"{fit.size:,}"
        places = [format_bytes(report.peak_bytes), format_bytes(host) if host else ""]
        rows.append([fit.strategy, size, *places, format_seconds(report.seconds), format_change(report.overhead)])
    headings = ["strategy", f">{what}", ">peak", ">host", ">time", ">overhead"]
    device = next((fit.report.target for fit in fits if fit.report is not None), "")
    file, budget = arguments.solver or arguments.net, arguments.budget
    if arguments.gpu:
        budget = format_bytes(parse_bytes(budget))
    ranks = f", first of {arguments.ranks} ranks" if (arguments.ranks or 1) > 1 else ""
    print_table(headings, rows, title=f"{file}{f' on {device}' if device else ''}, budget {budget}{ranks}")
    job = next((fit.report.job for fit in fits if fit.report is not None), None)
    if job is not None:
        warnings = [("warning", warning) for warning in job.costs.warnings(job.graphs[0])]
        for label, text in [*costs_facts(job), *warnings]:
            print(wrap(f"{label:<10}{text}"))


def _values(fits: list[Fit], what: str, budget: str, ranks: int | None) -> dict[str, object]:
    from layermem.utils.units import parse_bytes

    return {
        "budget_bytes": parse_bytes(budget),
        "ranks": ranks or 1,
        "strategies": [
            {
                "strategy": fit.strategy,
                what: fit.size,
                "peak_bytes": fit.report.peak_bytes if fit.report else None,
                "host_bytes": fit.report.program.host_bytes if fit.report else None,
                "predicted_seconds": fit.report.seconds if fit.report else None,
                "overhead": fit.report.overhead if fit.report else None,
            }
            for fit in fits
        ],
    }
