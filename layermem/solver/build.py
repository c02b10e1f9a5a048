"""The nets of a solver file, and the names of their blobs that go to the host or are held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from layermem.data import probe
from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions
from layermem.layers.data import Probe, stated_batch
from layermem.proto.filter import filter_net
from layermem.proto.read import SolverFile
from layermem.proto.solver_nets import NetOfSolver, test_nets, train_net
from layermem.solver.parameters import check_shared
from layermem.utils.similar import did_you_mean

Inputs = Mapping[str, tuple[int, ...]]  # shapes by name of top


@dataclass(frozen=True)
class Reported:
    """A blob whose value a net copies to the host: its Caffe name, its newest version, its weight in the objective."""

    name: str
    version: str
    weight: float
    output: bool  # whether no layer reads it


@dataclass(frozen=True)
class Nets:
    """The train net (the first) and the test nets, with the number of batches in a test of each."""

    all: tuple[Net, ...]
    test_iterations: tuple[int, ...]

    @property
    def train(self) -> Net:
        return self.all[0]

    @property
    def tests(self) -> tuple[Net, ...]:
        return self.all[1:]


def build_nets(solver: SolverFile, options: NetOptions = NetOptions(), probe: Probe = probe) -> Nets:
    """Build all nets that the solver names.  The batch size and NetState of `options` are for the train net; its inputs
    also apply to the test nets, with their own batch sizes."""
    train, tests = train_net(solver), test_nets(solver)
    own = replace(options, level=options.level or train.level, stages=(*train.stages, *options.stages))
    nets = [Net(train.net, train.phase, own, probe=probe)]
    for number, test in enumerate(tests, start=1):
        inputs = _inputs_of_test(test, options.inputs)
        of_test = replace(options, batch=None, inputs=inputs, level=test.level, stages=test.stages)
        nets.append(Net(test.net, test.phase, of_test, probe=probe, number=number))
    for each in nets[1:]:
        check_shared(nets[0], each)
    if not any(each.weight for each in reported(nets[0])):
        raise InputError("has no loss to train for; add a loss layer, or a loss_weight", path=str(nets[0].path))
    return Nets(tuple(nets), tuple(test.iterations for test in tests))


def _inputs_of_test(chosen: NetOfSolver, inputs: Inputs | None) -> Inputs | None:
    """The part of `inputs` for a test net: the shapes of its tops, in the batch size that its layer states."""
    if not inputs:
        return inputs
    net = filter_net(chosen.net, chosen.phase, chosen.level, chosen.stages).message
    shapes: dict[str, tuple[int, ...]] = {}
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
    """The globs for gradients of parameters, such as "*.diff" and "ip.w0.diff"."""
    return [glob for glob in globs if glob.endswith(".diff")]


def matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def check_keep(nets: Sequence[Net], globs: Sequence[str]) -> None:
    """Raise InputError for a glob that matches neither a blob of any net nor a gradient of a parameter."""
    names = dict.fromkeys(name for net in nets for layer in net.layers for name in layer.message.top)
    names |= dict.fromkeys(f"{name}.diff" for name in nets[0].params)
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            hint = did_you_mean(glob, names) or "`layermem show` lists the blobs"
            raise InputError(f"keep names '{glob}', and no blob has that name; {hint}", path=str(nets[0].path))
