"""Which fused updates save memory: hand numbers on one op and its gradient, and the strategies that use them."""

from dataclasses import replace

import pytest

from layermem.backends.cpu import CpuDevice
from layermem.graph.net import Net
from layermem.graph.train import UpdateRule, train_graph
from layermem.planning.bounds import least_seconds
from layermem.planning.costs import model_costs
from layermem.planning.fused_updates import saves_memory, with_fused_updates
from layermem.proto.read import read_net_text
from tests.compiling import compile


def graph_of(num_output: int, inputs: int = 90, batch: int = 4):
    """x [batch, inputs] -> fc [batch, num_output]: x and dy have 4 batch (inputs + num_output) bytes, dw 4 inputs
    num_output."""
    text = f"""
    layer {{ name: "in" type: "Input" top: "x" top: "t" input_param {{ shape {{ dim: {batch} dim: {inputs} }}
             shape {{ dim: {batch} dim: {num_output} }} }} }}
    layer {{ name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param {{ num_output: {num_output} }} }}
    layer {{ name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "t" top: "loss" }}
    """
    return train_graph(Net(read_net_text(text), 0), CpuDevice(), UpdateRule("SGD", 1))


@pytest.mark.parametrize(
    "num_output, inputs, batch", [(64, 90, 4), (2, 90, 4), (90, 90, 45), (90, 90, 46), (3, 8, 2), (3, 8, 3)]
)
def test_a_fused_update_saves_memory_where_x_dy_and_its_workspace_are_no_larger_than_dw(num_output, inputs, batch):
    graph = graph_of(num_output, inputs, batch)
    [fused] = graph.fused_updates
    kept_bytes = 4 * batch * (inputs + num_output) + fused.workspace_bytes
    assert saves_memory(graph, fused) == (kept_bytes <= 4 * inputs * num_output)


def test_only_fused_updates_that_save_memory_are_selected():
    wide, narrow = graph_of(64), graph_of(2)
    assert "fc.backward_update" in with_fused_updates(wide).by_name and "fc.wgrad" in wide.by_name
    assert "fc.wgrad" not in with_fused_updates(wide).by_name
    assert narrow.fused_updates and with_fused_updates(narrow) is narrow


def test_the_form_with_fused_updates_is_made_once():
    graph = graph_of(64)
    assert with_fused_updates(graph) is with_fused_updates(graph)


@pytest.mark.parametrize("num_output, used", [(64, True), (2, False)])
def test_auto_runs_the_fused_updates_that_save_memory(num_output, used):
    order = compile([graph_of(num_output)], strategy="auto").train.plan.order
    assert ("fc.backward_update" in order) == used


def test_a_fused_update_slower_than_its_two_ops_does_not_raise_the_bound():
    graph, model = graph_of(64), model_costs("cpu")
    [fused] = graph.fused_updates
    apart = sum(model.op(graph.by_name[name]) for name in fused.covers)
    costs = replace(model, measured={fused.name: 2 * apart})
    program = compile([graph], strategy="liveness", costs=costs)
    assert fused.name not in program.train.plan.order
    assert least_seconds(graph, costs, program.arena_bytes) <= program.seconds * (1 + 1e-9)
