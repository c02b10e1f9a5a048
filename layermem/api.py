"""What `import layermem` offers beside the solver: nets and plans from files, in one call each.

net = layermem.Net("lenet.prototxt", batch=32)
report = layermem.plan(net, budget="50%")                  what a training step takes, and why
program = layermem.compile(solver="solver.prototxt", strategy="liveness")       the schedules themselves
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from layermem.backends.base import Device, get_device
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.graph.deploy import deploy_net
from layermem.interactive.building import Source, build_net
from layermem.interactive.net import Net
from layermem.interactive.solver import Solver
from layermem.job import Budget, Job, resolve_costs
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.spill import Spill
from layermem.proto.read import SolverFile, read_solver
from layermem.proto.schema import Message
from layermem.report.plan_report import PlanReport, evaluate
from layermem.schedule.program import Program
from layermem.solver import build
from layermem.solver.checks import check_solver
from layermem.solver.sharing import ranks_of, ranks_of_net, with_iter_size
from layermem.solver.spill_rates import resolve_spill

__all__ = ["Net", "Solver", "build_net", "compile", "default_device", "deploy", "job_of_net", "job_of_solver", "plan"]

Path = str | PathLike[str]


def plan(
    net: Source | Net | graph_net.Net | None = None,
    *,
    solver: Path | SolverFile | None = None,
    strategy: str | None = None,
    budget: Budget = None,
    host_budget: Budget = None,
    spill: Path | None = None,
    device: str | Device | None = None,
    costs: Costs | Path | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    slices: str | None = None,
    saved: Path | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
) -> PlanReport:
    """What a training step of `net`, or of all nets of `solver`, takes on `device`.

    strategy   by default `auto` under a budget, else `liveness`
    budget     bytes (1.5e9 too), "2GiB", "50%" of what strategy `caffe` takes, or "free": what a GPU has now; if
               nothing fits, the answer is not `feasible`
    host_budget  the same for what is offloaded; None is no limit, or 0 for a device that computes in the host's memory
    spill      folder for offloaded bytes, which are then in a file; its rates are measured where none are kept
    slices     layers that run in slices of the batch, and how many: "conv1_1..pool2/4", or "whole/4"; weights in bands
               of rows: "fc6/rows/8"; both, with a comma between; "auto": those with the fastest plan; None is "off"
    costs      measured costs or the path of their file; by default a model of the device
    saved      a plan that `plan --save` wrote, instead of a strategy
    allow_python   import and run the classes of Python layers, of a net or solver that is read here
    ranks      the step is that of the first of so many ranks, which train together (docs/ranks.md)
    iter_size  micro-batches of an iteration, instead of the solver's; of a net one for each rank
    """
    job = job_of(
        net, solver=solver, device=device, costs=costs, batch=batch, hints=hints, allow_python=allow_python,
        ranks=ranks, iter_size=iter_size, spill=spill,
    )  # fmt: skip
    job = job.with_host_budget(host_budget).with_slices(slices)
    return evaluate(job, strategy, budget, saved)


def compile(
    net: Source | Net | graph_net.Net | None = None,
    *,
    solver: Path | SolverFile | None = None,
    strategy: str | None = None,
    budget: Budget = None,
    host_budget: Budget = None,
    spill: Path | None = None,
    device: str | Device | None = None,
    costs: Costs | Path | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    slices: str | None = None,
    saved: Path | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
) -> Program:
    """The checked schedules that `plan` describes, ready for a runtime.Runner; BudgetError if nothing fits."""
    report = plan(
        net, solver=solver, strategy=strategy, budget=budget, host_budget=host_budget, device=device, costs=costs,
        batch=batch, hints=hints, slices=slices, saved=saved, allow_python=allow_python, ranks=ranks,
        iter_size=iter_size, spill=spill,
    )  # fmt: skip
    return report.feasible_program()


def deploy(
    source: Source,
    *,
    batch: int | None = None,
    inputs: Mapping[str, Iterable[int]] | None = None,
    level: int = 0,
    stages: Iterable[str] = (),
    allow_python: bool = False,
) -> Message:
    """The deploy form of a train_val.prototxt, as a NetParameter: data layers become Input layers of the shapes that
    they have in TEST, SoftmaxWithLoss becomes Softmax, and what needs labels is left out (graph/deploy.py).

    The arguments are those of layermem.Net, which takes the result: layermem.Net(layermem.deploy("lenet.prototxt")).
    """
    return deploy_net(
        build_net(source, "TEST", batch=batch, inputs=inputs, level=level, stages=stages, allow_python=allow_python)
    )


# -- jobs ------------------------------------------------------------------------------------------------------


def job_of(
    net: Source | Net | graph_net.Net | None,
    *,
    solver: Path | SolverFile | None = None,
    device: str | Device | None = None,
    costs: Costs | Path | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    level: int = 0,
    stages: Sequence[str] = (),
    inputs: Mapping[str, tuple[int, ...]] | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
    spill: Path | Spill | None = None,
) -> Job:
    """The job of a net or of a solver: exactly one of them.

    level, stages   for the train net
    inputs          shapes by name of the tops of a solver's input layers; its data sets are then not opened
    ranks, iter_size, spill   as for plan(); a Spill has its rates
    """
    if (net is None) == (solver is None):
        raise InputError("give a net or a solver, and not both")
    target = device if isinstance(device, Device) else get_device(device or default_device())
    known = resolve_costs(costs, target.title, target.gpu)
    file = spill if isinstance(spill, Spill) else resolve_spill(spill, target)
    if solver is not None:
        return job_of_solver(
            solver, target, known, batch=batch, hints=hints, level=level, stages=stages, inputs=inputs,
            allow_python=allow_python, ranks=ranks, iter_size=iter_size, spill=file,
        )  # fmt: skip
    shared = ranks_of_net(ranks, iter_size)
    if isinstance(net, (Net, graph_net.Net)):
        if batch is not None:
            raise InputError("batch applies to a net file; a Net object has its batch already")
        return job_of_net(net, target, known, hints=hints, ranks=shared, spill=file)
    assert net is not None
    built = build_net(net, batch=batch, level=level, stages=stages, allow_python=allow_python)
    return job_of_net(built, target, known, hints=hints, ranks=shared, spill=file)


def job_of_net(
    net: Net | graph_net.Net, device: Device, costs: Costs, *, hints: Hints = Hints(), ranks: Ranks = Ranks(),
    spill: Spill | None = None,
) -> Job:  # fmt: skip
    """A step of one net: in TRAIN with an SGD-momentum update, Caffe's usual state; in TEST forward alone."""
    definition = net.definition if isinstance(net, Net) else net
    return build.job_of_net(definition, device, costs, hints=hints, ranks=ranks, spill=spill)


def job_of_solver(
    solver: Path | SolverFile, device: Device, costs: Costs, *, batch: int | None = None, hints: Hints = Hints(),
    level: int = 0, stages: Sequence[str] = (), inputs: Mapping[str, tuple[int, ...]] | None = None,
    allow_python: bool = False, ranks: int = 1, iter_size: int | None = None, spill: Spill | None = None,
) -> Job:  # fmt: skip
    """A step of a solver's train net with the solver's update, and its test nets in the same arena."""
    file = with_iter_size(solver if isinstance(solver, SolverFile) else read_solver(solver), iter_size)
    check_solver(file)
    shared = ranks_of(file, ranks)
    nets = build.build_nets(
        file, batch=batch, level=level, stages=stages, inputs=dict(inputs or {}), allow_python=allow_python
    )
    return build.job_of(nets, file, device, costs=costs, hints=hints, ranks=shared, spill=spill)


def default_device() -> str:
    """The fastest device that every machine has."""
    return "cpu"
