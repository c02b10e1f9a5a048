"""Makes jobs from a net or a solver, a device and costs in the forms that users give.

The module is separate from net.py and solver.py, so that a plan loads none of their code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeGuard

from layermem.backends.base import Device
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.graph.net import NetOptions
from layermem.interactive.building import Source, built_net
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.job import Budget, Job
from layermem.planning.spill import Spill
from layermem.proto.read import SolverFile, read_solver
from layermem.solver.build import Nets, build_nets
from layermem.solver.checks import check_solver
from layermem.solver.jobs import StepOptions, net_job, solver_job
from layermem.solver.sharing import with_iter_size
from layermem.utils.files import PathName

if TYPE_CHECKING:
    from layermem.interactive.net import Net
    from layermem.solver.noise import Data


def job_of(
    net: Source | Net | graph_net.Net | None = None,
    *,
    solver: PathName | SolverFile | None = None,
    device: str | Device | None = None,
    costs: Costs | PathName | None = None,
    batch: int | None = None,
    hints: Hints = Hints(),
    level: int = 0,
    stages: Iterable[str] = (),
    inputs: Mapping[str, Iterable[int]] | None = None,
    allow_python: bool = False,
    ranks: int = 1,
    iter_size: int | None = None,
    spill: PathName | Spill | None = None,
    host_budget: Budget = None,
    slices: str | None = None,
    split_weights: str | None = None,
) -> Job:
    """Make the job of a net or of a solver: exactly one of them.

    level, stages   NetState of the train net
    inputs          shapes by name of the tops of input layers; data sets with given shapes are not opened
    The other arguments are those of layermem.plan(); a Spill has rates.
    """
    step = StepOptions(
        device=device or default_device(), spill=spill, costs=costs, hints=hints, ranks=ranks, iter_size=iter_size,
        host_budget=host_budget, slices=slices, split_weights=split_weights,
    )  # fmt: skip
    return make_job(net, solver, NetOptions.of(batch, inputs, level, stages, allow_python), step)


def make_job(
    net: Source | Net | graph_net.Net | None,
    solver: PathName | SolverFile | None,
    options: NetOptions,
    step: StepOptions,
    phase: str | None = None,
    data: Data = None,
) -> Job:
    """Make the job of a net, or of a solver with its test nets; `data` replaces that of a solver's
    nets, as in a run."""
    if (net is None) == (solver is None):
        raise InputError("give a net or a solver, and not both")
    if solver is not None:
        file = with_iter_size(solver if isinstance(solver, SolverFile) else read_solver(solver), step.iter_size)
        check_solver(file)
        return solver_job(file, _nets_of(file, options, data), step)
    if _is_net(net):
        if options.batch is not None:
            raise InputError("batch applies to a net file; a Net object has its batch already")
        return net_job(net if isinstance(net, graph_net.Net) else net.definition, step)
    assert net is not None
    return net_job(built_net(net, phase, options), step)


def _nets_of(file: SolverFile, options: NetOptions, data: Data) -> Nets:
    if data is None:
        return build_nets(file, options)
    from layermem.solver.noise import nets_of_run  # it loads what reads images

    return nets_of_run(file, options, data)


def default_device() -> str:
    """Return the name of the fastest device that every machine has."""
    return "cpu"


def _is_net(net: object) -> TypeGuard[Net | graph_net.Net]:
    """Whether `net` is built: a graph_net.Net, or an object that runs one and has it as `definition`."""
    return isinstance(net, graph_net.Net) or hasattr(type(net), "definition")
