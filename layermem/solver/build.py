"""From a solver file to a job: its nets, and the graphs that share one arena.

graphs   train step, updates (only with iter_size > 1, when gradients are held over several steps), test nets
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from layermem.backends.base import Device
from layermem.data import probe
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.ops import Graph
from layermem.graph.rewrite import rewrite
from layermem.graph.sharing import check_shareable, shared_graphs
from layermem.graph.step_slicer import MakeStep, StepSlicer
from layermem.graph.storage import Storage
from layermem.graph.train import Rule, forward_graph, train_graph, update_graph
from layermem.job import Job, PathName, resolve_costs, resolve_hints, title_of
from layermem.layers.data import Probe, stated_batch
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.spill import Spill
from layermem.proto.filter import filter_net
from layermem.proto.read import SolverFile
from layermem.proto.schema import PHASES
from layermem.proto.solver_nets import SolverNet, test_nets, train_net
from layermem.solver.parameters import check_shared
from layermem.solver.rules import rule_of
from layermem.solver.sharing import check_keep_shareable, ranks_of
from layermem.utils.similar import did_you_mean

MOMENTUM = Rule("SGD", 1)  # the update that is planned where no solver says otherwise
Inputs = dict[str, tuple[int, ...]]  # shapes by name of top


@dataclass(frozen=True)
class Reported:
    """A blob whose value a net gives to the host: its Caffe name, its newest version, its weight in the objective."""

    name: str
    version: str
    weight: float
    output: bool  # no layer reads it


@dataclass(frozen=True)
class Nets:
    """The train net (the first) and the test nets, with the number of batches of one test of each."""

    all: tuple[Net, ...]
    test_iterations: tuple[int, ...]

    @property
    def train(self) -> Net:
        return self.all[0]

    @property
    def tests(self) -> tuple[Net, ...]:
        return self.all[1:]


def build_nets(
    solver: SolverFile,
    *,
    batch: int | None = None,
    level: int = 0,
    stages: Sequence[str] = (),
    inputs: Inputs | None = None,
    probe: Probe = probe,
    allow_python: bool = False,
    noise: bool = False,
) -> Nets:
    """All nets that the solver names.

    batch   replaces the batch size of the train net's input layers
    inputs  shapes for tops of input layers, NCHW, of the train net and with their own batch sizes of the test nets
    allow_python, noise   as for a Net
    """
    train, tests = train_net(solver), test_nets(solver)
    make = partial(_net, probe=probe, allow_python=allow_python, noise=noise)
    nets = [make(train, batch, level, stages, inputs)]
    nets += [make(t, None, 0, (), _inputs_of_test(t, inputs), number=i) for i, t in enumerate(tests, start=1)]
    for test in nets[1:]:
        check_shared(nets[0], test)
    if not any(each.weight for each in reported(nets[0])):
        raise InputError("has no loss to train for; add a loss layer, or a loss_weight", path=str(nets[0].path))
    return Nets(tuple(nets), tuple(test.iterations for test in tests))


def _net(
    chosen: SolverNet,
    batch: int | None,
    level: int,
    stages: Sequence[str],
    inputs: Inputs | None,
    *,
    probe: Probe,
    allow_python: bool,
    noise: bool,
    number: int = 0,
) -> Net:
    stages, level = (*chosen.stages, *stages), level or chosen.level
    return Net(
        chosen.net,
        chosen.phase,
        batch=batch,
        inputs=inputs,
        probe=probe,
        level=level,
        stages=stages,
        allow_python=allow_python,
        noise=noise,
        number=number,
    )


def _inputs_of_test(chosen: SolverNet, inputs: Inputs | None) -> Inputs | None:
    """`inputs` for a test net: those of its tops, in the batch size that its layer states."""
    if not inputs:
        return inputs
    net = filter_net(chosen.net, chosen.phase, chosen.level, chosen.stages).message
    shapes: Inputs = {}
    for layer in net.layer:
        for top in layer.top if not layer.bottom or layer.type == "Python" else ():
            if inputs.get(top):
                shapes[top] = (stated_batch(layer) or inputs[top][0], *inputs[top][1:])
    return shapes


def reported(net: Net) -> list[Reported]:
    """Outputs of the net and blobs that count in its objective, in Caffe's order: by name."""
    weights = {version: weight for node in net.nodes for version, weight in zip(node.tops, node.loss_weights) if weight}
    names = {net.blob_version(name): name for node in net.nodes for name in node.layer.param.top}
    blobs = [
        Reported(names.get(version, version), version, weights.get(version, 0.0), version in net.outputs)
        for version in dict.fromkeys((*net.outputs, *weights))
    ]
    return sorted(blobs, key=lambda blob: blob.name)


def kept_names(net: Net, globs: Sequence[str]) -> list[str]:
    """The blobs of `net` whose names match one of `globs`, by the names in the prototxt."""
    names = dict.fromkeys(name for layer in net.layers for name in layer.message.top)
    return [name for name in names if matches(name, globs)]


def gradient_globs(globs: Sequence[str]) -> list[str]:
    """Those for gradients of parameters: "*.diff", "ip.w0.diff"."""
    return [glob for glob in globs if glob.endswith(".diff")]


def matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def check_keep(nets: Sequence[Net], globs: Sequence[str]) -> None:
    """InputError for a glob that matches no blob of any net, and no gradient of a parameter."""
    names = dict.fromkeys(name for net in nets for layer in net.layers for name in layer.message.top)
    names |= dict.fromkeys(f"{name}.diff" for name in nets[0].params)
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            hint = did_you_mean(glob, names) or "`layermem show` lists the blobs"
            raise InputError(f"keep names '{glob}', and no blob has that name; {hint}", path=str(nets[0].path))


def graphs_of(
    nets: Nets, solver: SolverFile, device: Device, keep: Sequence[str] = (), ranks: Ranks | None = None
) -> list[Graph]:
    """The graphs of all nets on `device`, the train step first, those of one of `ranks`.  `keep`: globs of blobs to
    hold to the end of it; those that end in .diff are for gradients of parameters."""
    ranks = ranks_of(solver) if ranks is None else ranks
    return list(shared_graphs(_of_one_machine(nets, solver, device, keep, ranks), nets.train, device, ranks))


def _of_one_machine(nets: Nets, solver: SolverFile, device: Device, keep: Sequence[str], ranks: Ranks) -> list[Graph]:
    """The graphs before ranks share them (graph/sharing.py)."""
    check_keep(nets.all, keep)
    check_shareable(nets.train, ranks)
    check_keep_shareable(keep, ranks)
    beside = graphs_beside(nets, solver, device, keep, apart=ranks.sub_steps > 1)
    return [step_of(solver, device, keep)(nets.train), *beside]


def test_of(device: Device, keep: Sequence[str] = ()) -> MakeStep:
    """A function from a test net, in any batch size, to its forward pass."""

    def test(net: Net, unfused: Collection[str] = ()) -> Graph:
        return forward_graph(net, device, [each.version for each in reported(net)], kept_names(net, keep), unfused)

    return test


def graphs_beside(
    nets: Nets,
    solver: SolverFile,
    device: Device,
    keep: Sequence[str] = (),
    unfused: Collection[str] = (),
    *,
    apart: bool = False,
) -> list[Graph]:
    """All but the train step; `apart`: updates have a graph of their own."""
    p = solver.message
    graphs = [update_graph(nets.train, device, rule_of(p), clip=p.clip_gradients >= 0)] if apart else []
    test = test_of(device, keep)
    return graphs + [test(net, unfused) for net in nets.tests]


def step_of(solver: SolverFile, device: Device, keep: Sequence[str] = ()) -> MakeStep:
    """A function from a train net, in any batch size, to its step with the update of `solver`."""
    p = solver.message
    rule, clip, held = rule_of(p), p.clip_gradients >= 0, p.iter_size > 1

    def step(net: Net, unfused: Collection[str] = ()) -> Graph:
        outputs = [each.version for each in reported(net)]
        diffs = [] if held else [name for name in net.params if matches(f"{name}.diff", gradient_globs(keep))]
        return train_graph(
            net, device, rule, clip=clip, outputs=outputs, keep=kept_names(net, keep), gradients=diffs, unfused=unfused
        )

    return step


def job_of(
    nets: Nets,
    solver: SolverFile,
    device: Device,
    *,
    costs: Costs | PathName | None = None,
    hints: Hints = Hints(),
    spill: Spill | None = None,
    keep: Sequence[str] = (),
    ranks: Ranks | None = None,
) -> Job:
    """The job of a solver: a step of its train net with its own update, and its test nets in the same arena; that of
    one of `ranks`, or of one machine.  `spill`: the file of its host arena."""
    ranks = ranks_of(solver) if ranks is None else ranks
    known = resolve_costs(costs, device.title, device.gpu).with_spill(spill)

    slicer = StepSlicer(
        nets.train,
        _of_one_machine(nets, solver, device, keep, ranks),
        step_of(solver, device, keep),
        device,
        lambda unfused: graphs_beside(nets, solver, device, keep, unfused, apart=ranks.sub_steps > 1),
        nets.tests,
        test_of(device, keep),
        lambda graphs: shared_graphs(graphs, nets.train, device, ranks),
    )
    graphs = (slicer.whole, *slicer.beside)
    known.check(slicer.of_one_machine, title_of(nets.train))
    return Job(
        title_of(nets.train),
        nets.all,
        graphs,
        known,
        rule_of(solver.message).history_count,
        resolve_hints(hints, nets.train, device.default_host_bytes(spill=spill is not None)),
        device.free_bytes,
        slicer,
        ranks=ranks,
    )


def job_of_net(
    net: Net,
    device: Device,
    costs: Costs,
    *,
    hints: Hints = Hints(),
    ranks: Ranks = Ranks(),
    spill: Spill | None = None,
) -> Job:
    """A step of one net: in TRAIN with an SGD-momentum update, Caffe's usual state; in TEST forward alone."""
    costs = costs.with_spill(spill)

    def step(net: Net, unfused: Collection[str] = ()) -> Graph:
        return train_graph(net, device, MOMENTUM, unfused=unfused)

    def beside(unfused: Collection[str] = ()) -> list[Graph]:
        return [update_graph(net, device, MOMENTUM)] if ranks.sub_steps > 1 else []

    slicer = None
    if net.phase == PHASES["TRAIN"]:
        check_shareable(net, ranks)
        slicer = StepSlicer(
            net,
            [step(net), *beside()],
            step,
            device,
            beside,
            share=lambda graphs: shared_graphs(graphs, net, device, ranks),
        )
    elif ranks != Ranks():
        raise InputError(
            "ranks share the training of a net, and this is its TEST phase; leave --ranks and --iter-size out",
            path=str(net.path),
        )
    if slicer is None:
        storage = Storage(net, lambda each: forward_graph(each, device), device)
        graphs = [rewrite(storage.of(forward_graph(net, device)), device)]
    else:
        graphs = [slicer.whole, *slicer.beside]
    costs.check(graphs[0] if slicer is None else slicer.of_one_machine, title_of(net))
    known = resolve_hints(hints, net, device.default_host_bytes(spill=spill is not None))
    return Job(
        title_of(net),
        (net,),
        tuple(graphs),
        costs,
        MOMENTUM.history_count,
        known,
        device.free_bytes,
        slicer,
        ranks=ranks,
    )
