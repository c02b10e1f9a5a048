"""Functions of `import layermem` besides the solver: nets and plans from files, in one call each.

net = layermem.Net("lenet.prototxt", batch=32)
report = layermem.plan(net, budget="50%")                  the memory of a training step
reports = layermem.compare("lenet.prototxt", budget="50%")  those of several strategies, the fastest first
fits = layermem.fit("lenet.prototxt", "1GiB")               the largest batch under each strategy
program = layermem.compile(solver="solver.prototxt", strategy="liveness")       the schedules themselves
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import ParamSpec

from layermem.backends.base import Device, get_device
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.graph.deploy import deploy_net
from layermem.graph.net import NetOptions
from layermem.interactive.building import Source, build_net, built_net
from layermem.interactive.jobs import default_device, job_of, make_job
from layermem.interactive.net import Net
from layermem.interactive.solver import Solver
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.job import Budget, Job
from layermem.proto.read import SolverFile
from layermem.proto.schema import Message
from layermem.report.comparison import evaluate_all, rank, select_strategies
from layermem.report.fitting import MAX_ITEMS, Fit, find_fits, jobs_by_batch, jobs_in_slices
from layermem.report.plan_report import PlanReport, evaluate
from layermem.schedule.program import Program
from layermem.solver.jobs import StepOptions
from layermem.utils.arguments import checked
from layermem.utils.files import PathName
from layermem.utils.units import bytes_of

__all__ = ["Net", "Solver", "build_net", "compare", "compile", "default_device", "deploy", "fit", "job_of", "plan"]


def plan(
    net: Source | Net | graph_net.Net | None = None,
    *,
    solver: PathName | SolverFile | None = None,
    strategy: str | None = None,
    budget: Budget = None,
    host_budget: Budget = None,
    spill: PathName | None = None,
    device: str | Device | None = None,
    costs: Costs | PathName | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    slices: str | None = None,
    split_weights: str | None = None,
    saved: PathName | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
) -> PlanReport:
    """Plan a training step of `net`, or of all nets of `solver`, on `device`; return its memory and time.

    strategy   by default `auto` under a budget, else `liveness`
    budget     bytes (also 1.5e9), "2GiB", "50%" of the memory of strategy `caffe`, or "free": what the device has left;
               if nothing fits, the answer is not `feasible`
    host_budget  the same for offloaded bytes; None is no limit, or 0 for a device that computes in the host's memory
    spill      folder for a file of offloaded bytes; its rates are measured unless they are known
    slices     layers that run in slices of the batch, and the number of slices: "conv1_1..pool2/4", or "whole/4";
               "auto": those with the fastest plan; None is "off"
    split_weights  inner products whose weights are in bands of rows, and the number of bands: "fc6/8,fc7/4"; "auto":
               those with the fastest plan; None is "auto" beside slices that are "auto", else "off"
    costs      measured costs or the path of their file; by default a model of the device
    saved      a plan that `plan --save` wrote, instead of a strategy
    allow_python   import and run the classes of Python layers, of a net or solver that is read here
    ranks      number of ranks that train together (`layermem docs ranks`); the step is that of the first one
    iter_size  micro-batches of an iteration, instead of the solver's; for a net one per rank
    """
    job = job_of(
        net, solver=solver, device=device, costs=costs, batch=batch, hints=hints, allow_python=allow_python,
        ranks=ranks, iter_size=iter_size, spill=spill, host_budget=host_budget, slices=slices,
        split_weights=split_weights,
    )  # fmt: skip
    return evaluate(job, strategy, budget, saved)


@checked
def compare(
    net: Source | Net | graph_net.Net | None = None,
    *,
    solver: PathName | SolverFile | None = None,
    strategies: Sequence[str] | None = None,
    budget: Budget = None,
    host_budget: Budget = None,
    spill: PathName | None = None,
    device: str | Device | None = None,
    costs: Costs | PathName | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    slices: str | None = None,
    split_weights: str | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
) -> list[PlanReport]:
    """The reports of several strategies for the same step, the fastest first, and those that fit no budget last.

    strategies   names; by default those of `layermem compare`
    The other arguments are those of `plan`.
    """
    names = select_strategies(None if strategies is None else ",".join(strategies))
    job = job_of(
        net, solver=solver, device=device, costs=costs, batch=batch, hints=hints, allow_python=allow_python,
        ranks=ranks, iter_size=iter_size, spill=spill, host_budget=host_budget, slices=slices,
        split_weights=split_weights,
    )  # fmt: skip
    return rank(evaluate_all(job, names, budget))


@checked
def fit(
    net: Source | None = None,
    budget: Budget = None,
    *,
    solver: PathName | SolverFile | None = None,
    strategies: Sequence[str] | None = None,
    device: str | Device | None = None,
    most: int = MAX_ITEMS,
    host_budget: Budget = None,
    spill: PathName | None = None,
    hints: Hints = Hints(),
    slices: str | None = None,
    split_weights: str | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
) -> list[Fit]:
    """The largest batch of `net`, or of the train net of `solver`, that fits the budget under each strategy, the
    largest first: `strategy`, `size` (0 if nothing fits), `report` (its plan), `items_per_second`.

    budget     bytes, such as "8GiB", or "free"; a percentage depends on the batch
    strategies names; by default those of `layermem fit`
    most       the largest batch that is tried
    slices, split_weights   by name: what is chosen depends on the batch; batches are multiples of the number of slices
    The other arguments are those of `plan`.
    """
    names = select_strategies(None if strategies is None else ",".join(strategies))
    device = device if isinstance(device, Device) else get_device(device or default_device())
    if budget is None or str(budget).endswith("%"):
        raise InputError("fit needs an amount of memory; give a budget such as '8GiB'")
    if most < 1:
        raise InputError(f"most {most} is too small; give 1 or more")
    nbytes = bytes_of(budget, free=device.free_bytes)
    step = StepOptions(device, host_budget=host_budget, spill=spill, hints=hints, ranks=ranks, iter_size=iter_size)

    def make(batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> Job:
        return make_job(net, solver, NetOptions.of(batch, shapes, allow_python=allow_python), step)

    jobs, sizes = jobs_in_slices(jobs_by_batch(make, {})[0], range(1, most + 1), slices, split_weights)
    return find_fits(jobs, sizes, names, nbytes)


P = ParamSpec("P")


def _program_of(plan: Callable[P, PlanReport]) -> Callable[P, Program]:
    @wraps(plan)
    def compile(*arguments: P.args, **options: P.kwargs) -> Program:
        return plan(*arguments, **options).feasible_program()

    return compile


compile = _program_of(plan)
compile.__name__ = compile.__qualname__ = "compile"
compile.__doc__ = """The checked schedules of what `plan` describes by the same arguments, ready for a runtime.Runner.

BudgetError if nothing fits."""


def deploy(
    source: Source,
    *,
    batch: int | None = None,
    inputs: Mapping[str, Iterable[int]] | None = None,
    level: int = 0,
    stages: Iterable[str] = (),
    allow_python: bool = False,
) -> Message:
    """Return the deploy form of a train_val.prototxt, as a NetParameter: data layers become Input layers with their
    shapes in TEST, SoftmaxWithLoss becomes Softmax, and layers that need labels are left out (graph/deploy.py).

    The arguments are those of layermem.Net, which takes the result: layermem.Net(layermem.deploy("lenet.prototxt")).
    """
    return deploy_net(built_net(source, "TEST", NetOptions.of(batch, inputs, level, stages, allow_python)))
