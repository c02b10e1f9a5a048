"""Gradients of whole nets, run by a plan in a poisoned arena, against central differences in float64."""

import numpy as np
import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.data import probe
from layermem.graph.net import Net
from layermem.graph.train import train_graph
from layermem.proto.read import read_net_text
from layermem.runtime.runner import Runner
from layermem.solver.build import reported
from layermem.solver.feeds import Feeds
from tests.compiling import compile
from tests.layers.harness import directions
from tests.nets import CHAIN, DATA, LOSS, NETS, SEGNET, conv, relu

TWO_LOSSES = f"""
    {DATA} {conv("stem", "data", 3, 3)} {relu("stem")} {conv("aux", "stem", 5, 1)}
    layer {{ name: "mean" type: "Pooling" bottom: "aux" top: "mean"
             pooling_param {{ pool: AVE global_pooling: true }} }}
    layer {{ name: "flat" type: "Flatten" bottom: "mean" top: "flat" }}
    layer {{ name: "aux_loss" type: "SoftmaxWithLoss" bottom: "flat" bottom: "label" top: "aux_loss" loss_weight: 0.3 }}
    layer {{ name: "cut" type: "Slice" bottom: "stem" top: "s1" top: "s2" slice_param {{ slice_point: 1 }} }}
    layer {{ name: "p" type: "PReLU" bottom: "s2" top: "p" }}
    layer {{ name: "sum" type: "Reduction" bottom: "p" top: "sum" loss_weight: 0.01
             reduction_param {{ operation: SUMSQ }} }}
    layer {{ name: "quiet" type: "Silence" bottom: "s1" }}
"""
UNEVEN = CHAIN.replace("lr_mult: 2 decay_mult: 0", "lr_mult: 0")
GRID = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {relu("conv1")}
    layer {{ name: "cells" type: "Convolution" bottom: "conv1" top: "cells"
            convolution_param {{ num_output: 14 kernel_h: 2 kernel_w: 1 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "columns" type: "DummyData" top: "labels" top: "boxes" dummy_data_param {{
            shape {{ dim: [4, 1, 3, 1] }} shape {{ dim: [4, 1, 3, 4] }}
            data_filler {{ type: "uniform" max: 1.9 }} data_filler {{ type: "uniform" min: 0.1 max: 0.8 }} }} }}
    layer {{ name: "truth" type: "Concat" bottom: "labels" bottom: "boxes" top: "truth" concat_param {{ axis: 3 }} }}
    layer {{ name: "region" type: "RegionLoss" bottom: "cells" bottom: "truth" top: "region"
            region_loss_param {{ num: 2 num_class: 2 biases: [1.2, 0.7, 0.5, 1.6] }} }}
    {LOSS % "conv1"}
"""  # the gradient of RegionLoss is not the derivative of its top
ALL = {**NETS, "two losses": TWO_LOSSES, "a bias that does not learn": UNEVEN}
del ALL["unreached"]  # propagate_down: false leaves out a part of the derivative
DIRECTIONS = 3  # in which each parameter is moved


def running(text, strategy):
    """A runner of the train step, with a batch that stays, and a function that runs it: objective and gradients."""
    net = Net(read_net_text(text), 0, probe=probe)
    device = ReferenceDevice("float64")
    wanted = reported(net)
    graph = train_graph(net, device, outputs=[each.version for each in wanted])
    program = compile([graph], strategy=strategy)
    context = {"seed": 11, "step": 4, "batch": Feeds([net], 3).next(0)}
    runner = Runner(program, device, context, poison=True)
    rng = np.random.default_rng(0)
    gradients = [b.name for b in graph.persistent() if b.kind == "gradient"]
    for name, owned in net.params.items():
        if owned.param.learned:
            runner.write(name, rng.standard_normal(owned.param.shape) * 0.4)

    states = {b.name: rng.standard_normal(b.tensor.shape) for b in graph.persistent() if b.kind == "state"}

    def run():
        for name in gradients:
            runner.write(name, np.zeros(runner.persistent[name].tensor.shape))
        for name, value in states.items():  # restores states that the previous run advanced
            runner.write(name, value)
        found = runner.run()
        return sum(each.weight * float(found[each.version].sum()) for each in wanted)

    return runner, [name.removesuffix(".diff") for name in gradients], run


@pytest.mark.samples(12)
@pytest.mark.parametrize("name", ALL)
def test_every_gradient_of_a_net_agrees_with_central_differences(name):
    """Gradients of one plan are compared, and those of two others have the same bits."""
    runner, parameters, run = running(ALL[name], "hybrid")
    run()
    analytic = {p: runner.read(f"{p}.diff") for p in parameters}
    assert parameters and all(np.isfinite(g).all() for g in analytic.values())
    for strategy in ("caffe", "sublinear"):
        other, _, run_other = running(ALL[name], strategy)
        run_other()
        assert all(other.read(f"{p}.diff").tobytes() == g.tobytes() for p, g in analytic.items()), strategy
    rng, epsilon = np.random.default_rng(1), 1e-6
    for p in parameters:
        value = runner.read(p).copy()
        for direction in directions(value.shape, rng, DIRECTIONS):
            sides = []
            for sign in (1, -1):
                runner.write(p, value + sign * epsilon * direction)
                sides.append(run())
            numeric = (sides[0] - sides[1]) / (2 * epsilon)
            along = analytic[p].reshape(value.shape) * direction
            found, scale = along.sum(), max(1, abs(numeric), float(np.linalg.norm(along)))
            assert abs(found - numeric) <= 2e-6 * scale, (p, found, numeric)
        runner.write(p, value)


def test_a_parameter_that_does_not_learn_has_no_gradient():
    _, parameters, _ = running(UNEVEN, "liveness")
    assert "conv2.w0" in parameters and "conv2.w1" not in parameters


@pytest.mark.parametrize("text", [TWO_LOSSES, SEGNET, GRID], ids=["two losses", "segnet", "grid"])
def test_the_gradients_are_the_same_bits_under_every_plan(text):
    found = []
    for strategy in ("caffe", "liveness", "intra", "inter", "hybrid", "sublinear", "recompute-exact"):
        runner, parameters, run = running(text, strategy)
        run()
        found.append({p: runner.read(f"{p}.diff").tobytes() for p in parameters})
    assert all(each == found[0] for each in found)
