"""fit: the largest batch, or the deepest residual net, that fits a budget under each strategy."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
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
    spill_of,
    strategies_text,
)
from layermem.errors import BudgetError, InputError
from layermem.utils.progress import show_progress
from layermem.utils.units import FREE, free_share

if TYPE_CHECKING:
    from layermem.backends.base import Device
    from layermem.graph.net import Net
    from layermem.job import Job
    from layermem.report.fitting import Fit
    from layermem.report.sized_jobs import SizedJobs

EXAMPLE = """\
  layermem examples vgg16 digits resnet20
  layermem fit --net vgg16/train_val.prototxt --budget 8GiB
  layermem fit --solver digits/solver.prototxt --budget 4MiB --max 2000
  layermem fit --net resnet20/train_val.prototxt --budget 400MiB \\
               --grow depth --max 50 --strategies liveness,recompute
"""
PROMISE = """\
The plan of each size that is printed is placed and checked. Where bytes are lost to fragmentation,
smaller sizes are placed one by one; of steps with thousands of ops few are, and a larger size may
fit.
"""
MAX_SIZE = {"batch": 1_000_000, "depth": 5000}
FAMILY = re.compile(r"ResNet-(\d+)( \(CIFAR-10\))?")  # names of the nets in nets/resnet.py


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
    return f"{PROMISE}\nexit code: 0, or 3 if no strategy fits at any size\n\n{strategies_text()}"


def run_fit(arguments: argparse.Namespace) -> int:
    from layermem.report.comparison import select_strategies

    arguments.budget = _amount(arguments)
    what: str = arguments.grow
    max_size = MAX_SIZE[what] if arguments.max is None else arguments.max
    if max_size < 1:
        raise InputError(f"--max {max_size} is too small; give 1 or more")
    make, sizes, words = _deeper(arguments, max_size) if what == "depth" else _larger(arguments, max_size)
    make, sizes = _sliced(arguments, make, sizes)
    names = select_strategies(arguments.strategies)
    with show_progress(len(names), "fitting") as show:

        def show_size(name: str, size: int, done: int) -> None:
            show(f"{name}: {what} {size}", done)

        rows = _fits(names, make, sizes, arguments, show_size)
    rows.sort(key=lambda row: (-row.size, row.seconds or 0.0))
    if arguments.json:
        print_json(_values(rows, what, words, arguments.budget, arguments.ranks))
    else:
        _print(rows, what, words, arguments, sizes[-1])
    return 0 if any(row.size for row in rows) else BudgetError.exit_code


def _amount(arguments: argparse.Namespace) -> str:
    """--budget as an amount: free memory of the GPU has one too, a share of each size has none."""
    budget = budget_of(arguments)
    if budget is None or budget.endswith("%"):
        raise InputError("fit needs an amount of memory; give --budget, such as --budget 8GiB")
    return budget if not budget.endswith(FREE) else f"{free_share(budget, device_of(arguments).free_bytes())}"


# -- jobs by size ------------------------------------------------------------------------------------------------

Words = Callable[[int], list[str]]  # the options with which `plan` has a size


def _larger(arguments: argparse.Namespace, max_size: int) -> tuple[SizedJobs, range, Words]:
    """Functions from batch size to job, and to the options of `plan`, and the sizes to try.  Of a recurrent net the
    sequences are the batch."""
    from layermem.graph.warnings import net_warnings
    from layermem.interactive.building import build_net, read_source
    from layermem.report.sized_jobs import SizedJobs

    given = read_shapes(arguments.input)
    source = read_source(arguments.net) if arguments.net else None  # once for all sizes
    whole: Net | None = None  # the net as it is, if it is recurrent

    def shapes(batch: int) -> tuple[int | None, dict[str, tuple[int, ...]]]:
        if whole is not None:
            return None, whole.shapes_with_streams(batch)
        return batch, {name: (batch, *shape[1:]) for name, shape in given.items()}

    def words(batch: int) -> list[str]:
        axis_0, by_name = shapes(batch)
        inputs = [("--input", f"{name}={','.join(map(str, shape))}") for name, shape in by_name.items()]
        return [*([] if axis_0 is None else ["--batch", str(axis_0)]), *chain.from_iterable(inputs)]

    def net_in(batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> Net:
        return build_net(
            source,
            arguments.phase or "TRAIN",
            batch=batch,
            inputs=shapes,
            level=arguments.level,
            stages=stages(arguments.stage),
            allow_python=arguments.allow_python,
        )

    if arguments.solver:
        device, hints = device_of(arguments), hints_of(arguments)
        spill = spill_of(arguments, device)

        def job(batch: int) -> Job:
            return solver_job(arguments, device, *shapes(batch), hints=hints, spill=spill)

        jobs = SizedJobs(job, _resizing_device(arguments))
        first = jobs(1)
        if first.nets[0].shapes_with_streams(1):
            whole = solver_job(arguments, device, None, given, hints=hints).nets[0]
            jobs = SizedJobs(job, _resizing_device(arguments))
        print_warnings(first.warnings)
        return jobs, range(1, max_size + 1), words
    smallest = net_in(*shapes(1))  # an error is raised here; during the search an InputError means "too large"
    print_warnings(net_warnings(smallest))
    if smallest.shapes_with_streams(1):
        whole = net_in(None, given)

    def net(batch: int) -> Net:
        return smallest if batch == 1 and whole is None else net_in(*shapes(batch))

    return _jobs(arguments, net, _resizing_device(arguments)), range(1, max_size + 1), words


def _resizing_device(arguments: argparse.Namespace) -> Device | None:
    """The device for SizedJobs; None where jobs need their nets: to be cut into slices, or run."""
    from layermem.job import NO_SLICES

    needs_nets = arguments.measure or (arguments.slices or NO_SLICES) != NO_SLICES
    return None if needs_nets else device_of(arguments)


def _deeper(arguments: argparse.Namespace, max_size: int) -> tuple[SizedJobs, range, Words]:
    """A function from depth to job, in the family of --net, and the depths to try.  No option of `plan` gives a
    depth."""
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

    depths = range(8, max_size + 1, 6) if match[2] else range(38, max_size + 1, 3)
    return _jobs(arguments, net), depths, lambda depth: []


def _jobs(arguments: argparse.Namespace, net: Callable[[int], Net], resizing_device: Device | None = None) -> SizedJobs:
    from layermem.interactive import jobs
    from layermem.report.sized_jobs import SizedJobs

    device, hints = device_of(arguments), hints_of(arguments)
    spill = spill_of(arguments, device)
    return SizedJobs(
        lambda size: jobs.job_of(net(size), device=device, hints=hints, spill=spill, **ranks_options(arguments)),
        resizing_device,
    )


def _sliced(arguments: argparse.Namespace, make: SizedJobs, sizes: range) -> tuple[SizedJobs, range]:
    """The jobs in the slices of --slices, and the batch sizes that these share equally."""
    from layermem.graph.step_slicer import Slices
    from layermem.job import AUTO_SLICES, NO_SLICES
    from layermem.report.sized_jobs import SizedJobs

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

    return SizedJobs(lambda size: make(size).with_slices(slices)), sizes


# -- search ------------------------------------------------------------------------------------------------


Show = Callable[[str, int, int], None]  # the strategy and the size that are planned, and the strategies done


@dataclass(frozen=True)
class Row:
    """A fit as it is printed, None where nothing fits; `facts` are those of its job's costs, with their labels."""

    strategy: str
    size: int
    peak_bytes: int | None = None
    host_bytes: int | None = None
    seconds: float | None = None
    overhead: float | None = None
    target: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, fit: Fit) -> Row:
        from layermem.report.summary import costs_facts, spill_facts

        report = fit.report
        if report is None:
            return cls(fit.strategy, fit.size)
        warnings = (("warning", warning) for warning in report.job.costs.warnings(report.job.graphs[0]))
        return cls(
            fit.strategy,
            fit.size,
            report.peak_bytes,
            report.program.host_bytes,
            report.seconds,
            report.overhead,
            report.target,
            (*costs_facts(report.job), *spill_facts(report.job), *warnings),
        )


def _fits(names: list[str], make: SizedJobs, sizes: range, arguments: argparse.Namespace, show: Show) -> list[Row]:
    """The fits of all strategies.  Those that fuse updates prepare nothing for the others: they are searched at the
    same time.  What combines others comes last: its search begins at their largest size."""
    from layermem.planning.registry import candidates_of_auto, get_strategy
    from layermem.utils.units import parse_bytes

    same_ops = arguments.grow == "batch"

    def search(names: Iterable[str], done: int = 0, at_least: int = 0, is_largest: bool = False) -> dict[str, Row]:
        def show_more(name: str, size: int, more: int) -> None:
            show(name, size, done + more)

        return _search(names, make, sizes, arguments, show_more, at_least, is_largest)

    def search_silently(names: Iterable[str], done: int) -> dict[str, Row]:
        return _search(names, make, sizes, arguments, lambda name, size, done: None)

    combining = [name for name in names if get_strategy(name).combines_others]
    offloading = (entry.name for entry in candidates_of_auto() if entry.offloads) if combining else ()
    single = dict.fromkeys([*(name for name in names if name not in combining), *islice(offloading, 1)])
    fusing = {name for name in single if get_strategy(name).fuses_updates}
    fusing |= {get_strategy(name).fit_after for name in fusing} & single.keys() if same_ops else set()
    others = [name for name in single if name not in fusing]
    # A copy of the process cannot use what a device holds beside the host's memory, and its results have no jobs.
    beside = bool(fusing and others) and device_of(arguments).shares_host_memory and not arguments.measure
    if not beside:
        rows = search([name for name in single if name in fusing])
        rows |= search(others, len(rows))
    else:
        rows = _fits_of_both([name for name in single if name in fusing], others, search, search_silently)
    largest = max((row.size for row in rows.values()), default=0)
    # Without copies, what combines others reaches no further than the furthest of these.
    knows_all = {entry.name for entry in candidates_of_auto()} <= rows.keys()
    is_largest = bool(largest) and knows_all and make(largest).hints.host_budget_bytes == 0
    for name, row in rows.items():
        make.rule_out(name, row.size, parse_bytes(arguments.budget))
    rows |= search(combining, len(rows), largest, is_largest)
    return [rows[name] for name in names]


def _fits_of_both(
    fusing: list[str],
    others: list[str],
    search: Callable[[Iterable[str], int], dict[str, Row]],
    search_silently: Callable[[Iterable[str], int], dict[str, Row]],
) -> dict[str, Row]:
    """The fits of both kinds, those of `others` in a copy of the process: first the ones that begin at each other's
    sizes.  Each of the rest, which are quick, falls to the process that is the first to be free: it begins at no other
    one's size, so the answers are the same."""
    from layermem.planning.registry import get_strategy
    from layermem.utils.parallel import Once, begin_beside

    before = {get_strategy(name).fit_after for name in others}
    rest = [name for name in others if not get_strategy(name).fit_after and name not in before]
    is_left = {name: Once() for name in rest}

    def search_rest(search: Callable[[Iterable[str], int], dict[str, Row]], rows: dict[str, Row]) -> dict[str, Row]:
        for name in rest:
            if is_left[name].take():
                rows |= search([name], len(rows))
        return rows

    def search_others() -> dict[str, Row]:
        return search_rest(search_silently, search_silently([name for name in others if name not in rest], 0))

    rows_of_others = begin_beside(search_others)
    rows = search_rest(search, search(fusing, 0))
    rows |= rows_of_others()
    return rows | search([name for name in rest if name not in rows], len(rows))  # if the copy failed with some


def _search(
    names: Iterable[str],
    make: SizedJobs,
    sizes: range,
    arguments: argparse.Namespace,
    show: Show,
    at_least: int = 0,
    is_largest: bool = False,
) -> dict[str, Row]:
    """The fits of strategies over the same jobs, each after the one that finds it a good place to begin at.  A size of
    `at_least`, if it is not 0, is known to fit, and no larger one if `is_largest`."""
    from layermem.planning.registry import get_strategy
    from layermem.report.fitting import Fitting
    from layermem.utils.units import parse_bytes

    rows: dict[str, Row] = {}
    name = ""  # of the strategy at work

    def make_and_show(size: int) -> Job:
        show(name, size, len(rows))
        return make(size)

    fitting = Fitting(make_and_show, sizes, parse_bytes(arguments.budget), same_ops=arguments.grow == "batch")
    waiting = list(names)
    waiting.sort(key=lambda each: bool(get_strategy(each).fit_after))
    while waiting:
        before = get_strategy(waiting[0]).fit_after if fitting.same_ops else ""
        if before and before not in rows:
            waiting = [before, *(each for each in waiting if each != before)]
            continue
        name = waiting.pop(0)
        fit = fitting.fit(name, sizes.index(at_least) + 1 if at_least else 0, is_largest=is_largest)
        if arguments.measure:
            fit = _measure(fit, device_of(arguments), arguments.budget)
        if fit.size:
            make.keep(fit.size)
        rows[name] = Row.of(fit)
    return rows


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


def _print(rows: list[Row], what: str, words: Words, arguments: argparse.Namespace, most: int) -> None:
    from layermem.report.tables import print_table
    from layermem.utils.text import wrap
    from layermem.utils.units import format_bytes, format_change, format_seconds, parse_bytes

    lines = []
    for row in rows:
        if row.peak_bytes is None or row.seconds is None or row.overhead is None:
            lines.append([row.strategy, "none", "", "", "", ""])
            continue
        size = f">= {row.size:,}" if row.size == most else f"{row.size:,}"
        places = [format_bytes(row.peak_bytes), format_bytes(row.host_bytes) if row.host_bytes else ""]
        lines.append([row.strategy, size, *places, format_seconds(row.seconds), format_change(row.overhead)])
    headings = ["strategy", f">{what}", ">peak", ">host", ">time", ">overhead"]
    fitting = next((row for row in rows if row.size), Row("", 0))
    device, file, budget = fitting.target, arguments.solver or arguments.net, arguments.budget
    if arguments.gpu:
        budget = format_bytes(parse_bytes(budget))
    ranks = f", first of {arguments.ranks} ranks" if (arguments.ranks or 1) > 1 else ""
    print_table(headings, lines, title=f"{file}{f' on {device}' if device else ''}, budget {budget}{ranks}")
    options = words(fitting.size) if fitting.size else []
    if options and "--batch" not in options:  # what is a batch of sequences has its shapes
        print(f"{'plan with':<10}{shlex.join(options)}")
    for label, text in fitting.facts:
        print(wrap(f"{label:<12}{text}"))


def _values(rows: list[Row], what: str, words: Words, budget: str, ranks: int | None) -> dict[str, object]:
    from layermem.utils.units import parse_bytes

    return {
        "budget_bytes": parse_bytes(budget),
        "ranks": ranks or 1,
        "strategies": [
            {
                "strategy": row.strategy,
                what: row.size,
                "options": words(row.size) if row.size else [],
                "peak_bytes": row.peak_bytes,
                "host_bytes": row.host_bytes,
                "predicted_seconds": row.seconds,
                "overhead": row.overhead,
            }
            for row in rows
        ],
    }
