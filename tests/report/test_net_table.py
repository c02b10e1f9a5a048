"""A net as a table, and the ops that run its layers."""

import pytest

from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.report.net_table import FUSED_HEADINGS, HEADINGS, fused_rows, fused_values, net_rows, net_values
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS


def net_of(name: str) -> Net:
    return Net(read_net_text(NETS[name]), 0)


@pytest.mark.parametrize("name", NETS)
def test_totals_are_the_sums_of_the_rows(name):
    net = net_of(name)
    values = net_values(net)
    rows, total = net_rows(values)
    assert len(rows) == len(net.layers) and all(len(row) == len(HEADINGS) for row in (*rows, total))
    assert values["flops"] == sum(layer["flops"] for layer in values["layers"])
    assert values["parameters"] == net.parameter_count


def test_an_in_place_layer_has_no_bytes_of_its_own():
    relu = next(layer for layer in net_values(net_of("chain"))["layers"] if layer["type"] == "ReLU")
    assert relu["bottoms"] == relu["tops"] and relu["bytes"] == 0


def test_running_averages_are_no_parameters():
    norm = next(layer for layer in net_values(net_of("residual"))["layers"] if layer["type"] == "BatchNorm")
    assert norm["parameters"] == 0 and norm["average_shapes"]


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", NETS)
def test_every_layer_is_run_by_an_op_of_the_schedule(name, device):
    net = net_of(name)
    job = net_job(net, StepOptions(device=device))
    values = fused_values(net_values(net), job.graphs[0])
    names = {op.name.rpartition(".")[0] for op in job.graphs[0].ops}
    assert all(layer["op"] in names for layer in values["layers"])
    assert all(len(row) == len(FUSED_HEADINGS) for row in fused_rows(values))
    for layer in values["layers"]:
        assert layer["name"] in layer["op"].split("+")
    steps = [f"{layer['op']}.{step}" for layer in values["layers"] for step in layer["steps"]]
    assert len(steps) == len(set(steps)) and {f"{layer['op']}.forward" for layer in values["layers"]} <= set(steps)


def test_the_cpu_device_fuses_a_convolution_and_its_relu():
    net = net_of("chain")
    job = net_job(net, StepOptions(device="cpu"))
    ops = {layer["name"]: layer["op"] for layer in fused_values(net_values(net), job.graphs[0])["layers"]}
    assert ops["conv1"] == ops["conv1_relu"] == "conv1+conv1_relu" and ops["pool1"] == "pool1"


def test_names_of_layers_may_contain_a_plus():
    net = Net(read_net_text(NETS["chain"].replace("pool1", "conv1+conv1_relu").replace('"conv2_relu"', '"a+b"')), 0)
    job = net_job(net, StepOptions(device="cpu"))
    ops = {layer["name"]: layer["op"] for layer in fused_values(net_values(net), job.graphs[0])["layers"]}
    assert ops["conv1"] == ops["conv1_relu"] == "conv1+conv1_relu(2)" and ops["conv2"] == ops["a+b"] == "conv2+a+b"
    assert ops["conv1+conv1_relu"] == "conv1+conv1_relu"
