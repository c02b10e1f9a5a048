"""Makes jobs: a training step of a net, or of a solver, with the graphs that share its arena.

graphs   train step, updates (only where gradients are held: over several steps with iter_size > 1, or by
         holds_gradients), test nets
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from layermem.backends.base import Device, get_device
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.ops import Graph
from layermem.graph.sharing import check_shareable, shared_graphs
from layermem.graph.step_slicer import GraphMakers, StepSlicer, finished
from layermem.graph.storage import Storage
from layermem.graph.train import MOMENTUM, UpdateRule, forward_graph, train_graph, update_graph
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.job import Budget, Job, resolve_costs, resolve_hints, title_of
from layermem.planning.partition_choices import CHOICES
from layermem.planning.plan import Plan
from layermem.planning.registry import Choice
from layermem.planning.spill import Spill
from layermem.proto.read import SolverFile
from layermem.proto.schema import PHASES
from layermem.solver.build import Nets, check_keep, gradient_globs, kept_names, matches, reported
from layermem.solver.rules import rule_of
from layermem.solver.sharing import check_keep_shareable, ranks_of, ranks_of_net
from layermem.solver.spill_rates import resolve_spill
from layermem.utils.arguments import check_fields, checked
from layermem.utils.files import PathName

MakersFor = Callable[[Device], GraphMakers]


@dataclass(frozen=True)
class StepOptions:
    """The user's options for a training step besides its net: device, memory and planning.

    device       a name ("reference", "cpu", ..) or a Device
    budget       bytes of device memory: a number, "512KiB", "50%" of strategy `caffe`, or "free", what the device
                 has left; None is no limit
    host_budget  the same for offloaded bytes; None is no limit, except for a device that computes in the host's memory,
                 where it is 0 without a spill
    spill        a folder for offloaded bytes, which are then in a file; plans use the rates of its file system
                 (solver/spill_rates.py), measured at first use; a Spill has its rates already
    slices       layers of the training step that run in slices of the batch, and the number of slices:
                 "conv1_1..pool2/4", or "whole/4"; "auto": those with the fastest plan; None is "off"
    split_weights   inner products whose weights are in bands of rows, and the number of bands: "fc6/8,fc7/4"; "auto":
                 those with the fastest plan; None is "auto" beside slices that are "auto", else "off"
    strategy     name of a strategy: by default `auto` under a budget, else `liveness`
    plan         a plan, or the file that `plan --save` wrote, in place of a strategy
    costs        measured costs, or their file; None is a model of the device
    hints        segment ends, and layers to keep or recompute
    measure      run some steps first, within the budget, and plan with the times of their ops; "once": measure only
                 if no times are kept for this GPU (planning/kept_costs.py)
    iter_size    micro-batches of an iteration, instead of the solver's
    keep         names of blobs (globs too) whose data and gradient are held to the end of a step, to be looked at;
                 "*.diff" holds the gradients of parameters
    """

    device: str | Device = "cpu"
    budget: Budget = None
    host_budget: Budget = None
    spill: PathName | Spill | None = None
    slices: str | None = None
    split_weights: str | None = None
    strategy: Choice | None = None
    plan: Plan | PathName | None = None
    costs: Costs | PathName | None = None
    hints: Hints = Hints()
    measure: bool | str = False
    ranks: int = 1  # number of ranks that train together; the step is that of the first one
    iter_size: int | None = None
    keep: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()  # versions of blobs that a net in TEST copies to the host beside its outputs

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    @checked
    def of(cls, keep: str | Iterable[str] = (), **options: Any) -> StepOptions:
        """Make the options from a user's arguments; `keep` may be a single name."""
        return cls(keep=(keep,) if isinstance(keep, str) else tuple(keep), **options)

    @property
    def spill_folder(self) -> PathName | None:
        return self.spill.folder if isinstance(self.spill, Spill) else self.spill

    @property
    def target(self) -> Device:
        return self.device if isinstance(self.device, Device) else get_device(self.device)


def net_job(net: Net, options: StepOptions = StepOptions()) -> Job:
    """The step of one net: in TRAIN with an SGD-momentum update, Caffe's usual state; in TEST only forward."""
    ranks = ranks_of_net(options.ranks, options.iter_size)
    if net.phase == PHASES["TRAIN"]:
        check_shareable(net, ranks)
        return _job((net,), MOMENTUM, partial(_makers_of_net, net, ranks), ranks, options)
    if ranks != Ranks():
        raise InputError(
            "ranks share the training of a net, and this is its TEST phase; leave --ranks and --iter-size out",
            path=str(net.path),
        )
    return _job((net,), MOMENTUM, None, ranks, options)


def solver_job(
    file: SolverFile,
    nets: Nets,
    options: StepOptions = StepOptions(),
    ranks: Ranks | None = None,
    *,
    holds_gradients: bool = False,
) -> Job:
    """The step of a solver's train net with its own update, and its test nets in the same arena, on one of `ranks` (by
    default the first).

    holds_gradients   gradients are persistent, and the updates are a graph of their own that leaves them as they are
    """
    ranks = ranks or ranks_of(file, options.ranks)
    check_keep(nets.all, options.keep)
    check_shareable(nets.train, ranks)
    check_keep_shareable(options.keep, ranks)
    makers = partial(_makers_of_solver, file, nets, options.keep, ranks, holds_gradients)
    return _job(nets.all, rule_of(file.message), makers, ranks, options)


def _job(nets: tuple[Net, ...], rule: UpdateRule, makers: MakersFor | None, ranks: Ranks, options: StepOptions) -> Job:
    """The job of `nets`; `makers` makes the training step, or is None for a forward pass only."""
    net, device = nets[0], options.target
    spill = options.spill if isinstance(options.spill, Spill) else resolve_spill(options.spill, device)
    costs = resolve_costs(options.costs, device.title, device.gpu).with_spill(spill)
    slicer = None if makers is None else StepSlicer(makers(device))
    if slicer is None:

        def forward(net: Net) -> Graph:
            return forward_graph(net, device, (*net.outputs, *options.copied) if options.copied else None)

        storage = Storage(net, forward, device, CHOICES)
        graphs: tuple[Graph, ...] = (finished(forward(net), storage, device),)
    else:
        graphs = (slicer.whole, *slicer.beside)
    costs.check(graphs[0] if slicer is None else slicer.of_one_machine, title_of(net))
    job = Job(
        title_of(net),
        nets,
        graphs,
        costs,
        rule.history_count,
        resolve_hints(options.hints, net, device.default_host_bytes(spill=spill is not None)),
        partial(free_bytes, device, nets, graphs),
        slicer,
        ranks=ranks,
    )
    return job.with_host_budget(options.host_budget).with_slices(options.slices, options.split_weights)


def free_bytes(
    device: Device, nets: Sequence[Net], graphs: Sequence[Graph], host_bytes: int, *, held_bytes: int = 0
) -> int:
    """The budget `free`, for an arena in place of one that holds `held_bytes`: on a device in host memory, what the
    process takes beside the arena is left."""
    from layermem.solver.process_memory import beside_arena_bytes  # which reads images

    beside = beside_arena_bytes(nets, graphs) if device.shares_host_memory else 0
    return device.free_bytes(host_bytes + beside, held_bytes)


def _makers_of_net(net: Net, ranks: Ranks, device: Device) -> GraphMakers:
    def step(net: Net, unfused: Collection[str] = ()) -> Graph:
        return train_graph(net, device, MOMENTUM, unfused=unfused)

    return GraphMakers(
        net,
        device,
        step,
        CHOICES,
        update=partial(update_graph, net, device, MOMENTUM) if ranks.sub_steps > 1 else None,
        for_rank=partial(shared_graphs, net=net, device=device, ranks=ranks),
    )


def _makers_of_solver(
    file: SolverFile, nets: Nets, keep: Sequence[str], ranks: Ranks, holds_gradients: bool, device: Device
) -> GraphMakers:
    param, net = file.message, nets.train
    rule, clip = rule_of(param), param.clip_gradients >= 0
    in_step = None if holds_gradients and ranks.micro_batches == 1 else rule  # shared_graphs takes out other updates

    def step(net: Net, unfused: Collection[str] = ()) -> Graph:
        held = param.iter_size > 1 or holds_gradients
        diffs = [] if held else [name for name in net.params if matches(f"{name}.diff", gradient_globs(keep))]
        outputs, kept = [each.version for each in reported(net)], kept_names(net, keep)
        return train_graph(
            net, device, in_step, clip=clip, outputs=outputs, keep=kept, gradients=diffs, unfused=unfused
        )

    def test(net: Net, unfused: Collection[str] = ()) -> Graph:
        return forward_graph(net, device, [each.version for each in reported(net)], kept_names(net, keep), unfused)

    return GraphMakers(
        net,
        device,
        step,
        CHOICES,
        update=partial(update_graph, net, device, rule, clip=clip, zeroes=not holds_gradients)
        if ranks.sub_steps > 1 or holds_gradients
        else None,
        tests=nets.tests,
        test=test,
        for_rank=partial(shared_graphs, net=net, device=device, ranks=ranks),
    )
