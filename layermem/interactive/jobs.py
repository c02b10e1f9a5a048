"""Jobs from what users name: a net or a solver, a device, costs.

Apart from nets and solvers that run (net.py, solver.py), so that a plan loads none of their code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

from layermem.backends.base import Device, get_device
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.interactive.building import PathName, Source, build_net
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.job import Job, resolve_costs
from layermem.planning.spill import Spill
from layermem.proto.read import SolverFile, read_solver
from layermem.solver import build
from layermem.solver.checks import check_solver
from layermem.solver.sharing import ranks_of, ranks_of_net, with_iter_size
from layermem.solver.spill_rates import resolve_spill

if TYPE_CHECKING:
    from layermem.interactive.net import Net


def job_of(
    net: Source | Net | graph_net.Net | None,
    *,
    solver: PathName | SolverFile | None = None,
    device: str | Device | None = None,
    costs: Costs | PathName | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    level: int = 0,
    stages: Sequence[str] = (),
    inputs: Mapping[str, tuple[int, ...]] | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
    spill: PathName | Spill | None = None,
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
            solver,
            target,
            known,
            batch=batch,
            hints=hints,
            level=level,
            stages=stages,
            inputs=inputs,
            allow_python=allow_python,
            ranks=ranks,
            iter_size=iter_size,
            spill=file,
        )
    shared = ranks_of_net(ranks, iter_size)
    if _is_net(net):
        if batch is not None:
            raise InputError("batch applies to a net file; a Net object has its batch already")
        return job_of_net(net, target, known, hints=hints, ranks=shared, spill=file)
    assert net is not None
    built = build_net(net, batch=batch, level=level, stages=stages, allow_python=allow_python)
    return job_of_net(built, target, known, hints=hints, ranks=shared, spill=file)


def job_of_net(
    net: Net | graph_net.Net,
    device: Device,
    costs: Costs,
    *,
    hints: Hints = Hints(),
    ranks: Ranks = Ranks(),
    spill: Spill | None = None,
) -> Job:
    """A step of one net: in TRAIN with an SGD-momentum update, Caffe's usual state; in TEST forward alone."""
    definition = net if isinstance(net, graph_net.Net) else net.definition
    return build.job_of_net(definition, device, costs, hints=hints, ranks=ranks, spill=spill)


def job_of_solver(
    solver: PathName | SolverFile,
    device: Device,
    costs: Costs,
    *,
    batch: int | None = None,
    hints: Hints = Hints(),
    level: int = 0,
    stages: Sequence[str] = (),
    inputs: Mapping[str, tuple[int, ...]] | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
    spill: Spill | None = None,
) -> Job:
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


def _is_net(net: object) -> TypeGuard[Net | graph_net.Net]:
    """Whether `net` is built: graph_net.Net, or what runs one and has it as `definition`."""
    return isinstance(net, graph_net.Net) or hasattr(type(net), "definition")
