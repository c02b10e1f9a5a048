"""What `import layermem` offers beside the solver: nets and plans from files, in one call each.

net = layermem.Net("lenet.prototxt", batch=32)
found = layermem.plan(net, budget="50%")                   what a training step takes, and why
program = layermem.compile(solver="solver.prototxt", strategy="liveness")       the schedules themselves
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path as FilePath

from layermem.backends.base import Device, get_device
from layermem.compiler import Program
from layermem.data import probe
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.graph.train import Rule, forward_graph, train_graph
from layermem.planning.base import Hints, Plan
from layermem.planning.costs import Costs, model_costs, read_costs
from layermem.planning.hints import check_hints, hints_beside, joined
from layermem.proto.read import SolverFile, read_net, read_solver
from layermem.proto.schema import PHASES
from layermem.report.plan_report import Job, PlanReport, evaluate
from layermem.solver.build import build_nets, check_solver, graphs_of
from layermem.solver.rules import rule_of
from layermem.solver.solver import Solver

__all__ = ["Net", "Solver", "compile", "default_device", "job_of_net", "job_of_solver", "plan"]

Path = str | PathLike[str]
MOMENTUM = Rule("SGD", 1)  # the update that is planned where no solver says otherwise


class Net(graph_net.Net):
    """The net in a prototxt file, in one phase ("TRAIN" or "TEST"), with every shape known.

    batch    replaces the batch size of every input layer
    inputs   shapes (NCHW) by name of the tops of input layers; a data set whose shapes are given is not opened
    stages, level   as the NetStateRules of the file ask for them
    """

    def __init__(
        self,
        path: Path,
        phase: str = "TRAIN",
        *,
        batch: int | None = None,
        inputs: Mapping[str, Iterable[int]] | None = None,
        level: int = 0,
        stages: Iterable[str] = (),
    ):
        if phase not in PHASES:
            raise InputError(f"unknown phase '{phase}' (choose from {', '.join(PHASES)})")
        shapes = {name: tuple(shape) for name, shape in (inputs or {}).items()}
        super().__init__(
            read_net(path), PHASES[phase], batch=batch, inputs=shapes, probe=probe, level=level, stages=stages
        )


def plan(
    net: Path | graph_net.Net | None = None,
    *,
    solver: Path | SolverFile | None = None,
    strategy: str | None = None,
    budget: int | str | None = None,
    device: str | Device | None = None,
    costs: Costs | Path | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    saved: Path | None = None,
) -> PlanReport:
    """What a training step of `net`, or of all nets of `solver`, takes on `device`.

    strategy   by default `auto` under a budget, else `liveness`
    budget     bytes, "2GiB", "50%" of what strategy `caffe` takes, or "free": what a card has now; if nothing fits, the
               answer is not `feasible`
    costs      measured costs or the path of their file; by default a model of the device
    saved      a plan that `plan --save` wrote, instead of a strategy
    """
    job = job_of(net, solver=solver, device=device, costs=costs, batch=batch, hints=hints)
    return evaluate(job, strategy, budget, read_plan(saved, job) if saved is not None else None)


def compile(
    net: Path | graph_net.Net | None = None,
    *,
    solver: Path | SolverFile | None = None,
    strategy: str | None = None,
    budget: int | str | None = None,
    device: str | Device | None = None,
    costs: Costs | Path | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    saved: Path | None = None,
) -> Program:
    """The checked schedules that `plan` tells of, ready for a runtime.Runner; BudgetError if nothing fits."""
    found = plan(
        net, solver=solver, strategy=strategy, budget=budget, device=device, costs=costs, batch=batch, hints=hints,
        saved=saved,
    )  # fmt: skip
    if found.refusal is not None:
        raise found.explain_refusal()
    return found.program


# -- jobs ------------------------------------------------------------------------------------------------------


def job_of(
    net: Path | graph_net.Net | None,
    *,
    solver: Path | SolverFile | None = None,
    device: str | Device | None = None,
    costs: Costs | Path | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    level: int = 0,
    stages: Sequence[str] = (),
) -> Job:
    """The job that a net or a solver makes: exactly one of them.  `level` and `stages` are for the train net."""
    if (net is None) == (solver is None):
        raise InputError("give a net or a solver, and not both")
    chosen = device if isinstance(device, Device) else get_device(device or default_device())
    known = costs if isinstance(costs, Costs) else model_costs(chosen.title)
    if costs is not None and not isinstance(costs, Costs):
        known = read_costs(FilePath(costs), chosen.title)
    if solver is not None:
        return job_of_solver(solver, chosen, known, batch=batch, hints=hints, level=level, stages=stages)
    if not isinstance(net, graph_net.Net):
        net = Net(str(net), batch=batch, level=level, stages=stages)
    elif batch is not None:
        raise InputError("batch applies to a net file; a Net object has its batch already")
    return job_of_net(net, chosen, known, hints=hints)


def job_of_net(net: graph_net.Net, device: Device, costs: Costs, *, hints: Hints = Hints()) -> Job:
    """A step of one net: in TRAIN with an SGD-momentum update, Caffe's usual state; in TEST forward alone."""
    graph = train_graph(net, device, MOMENTUM) if net.phase == PHASES["TRAIN"] else forward_graph(net, device)
    known = all_hints(hints, net)
    return Job(title_of(net), (net,), (graph,), costs, MOMENTUM.histories, known, device.free_bytes)


def job_of_solver(
    solver: Path | SolverFile, device: Device, costs: Costs, *, batch: int | None = None, hints: Hints = Hints(),
    level: int = 0, stages: Sequence[str] = (),
) -> Job:  # fmt: skip
    """A step of a solver's train net with the solver's update, and its test nets in the same arena."""
    file = solver if isinstance(solver, SolverFile) else read_solver(solver)
    check_solver(file)
    nets = build_nets(file, batch=batch, level=level, stages=stages)
    graphs = graphs_of(nets, file, device)
    histories = rule_of(file.message).histories
    known = all_hints(hints, nets.train)
    return Job(title_of(nets.train), nets.all, tuple(graphs), costs, histories, known, device.free_bytes)


def all_hints(hints: Hints, net: graph_net.Net) -> Hints:
    """`hints`, and those in the file beside the net; every one of them must mean a layer of the net."""
    both = joined(hints, hints_beside(net.path))
    check_hints(both, (node.layer.name for node in net.nodes))
    return both


def title_of(net: graph_net.Net) -> str:
    """ "ResNet-50 x32" for a net whose first blob has 32 items."""
    shape = net.nodes[0].layer.tops[0].shape if net.nodes[0].layer.tops else ()
    return f"{net.name} x{shape[0]}" if shape else net.name


def default_device() -> str:
    """The fastest device that every machine has."""
    return "cpu"


def read_plan(path: Path, job: Job) -> Plan:
    """A plan that was saved, if it was made for this job."""
    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"cannot be read as a plan: {reason}", path=str(path)) from None
    return Plan.from_json(text, job.graphs[0], str(path))
