"""A training graph as a graph file: a function per layer, its backward, and what each reads and writes."""

import pytest

from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, FORWARD
from layermem.graph.train import UpdateRule, train_graph
from layermem.integrations.graph_files.export import graph_file
from layermem.integrations.graph_files.planner import GraphPlanner
from layermem.integrations.graph_files.schedule_text import run_schedule
from layermem.integrations.graph_files.text_format import format_graph, parse_graph
from layermem.planning.costs import model_costs
from layermem.proto.read import read_net_text
from tests.nets import NETS
from tests.planning.chains import chain

COSTS = model_costs("reference")


def graph_of(net):
    return train_graph(Net(read_net_text(NETS[net]), 0), get_device("reference"), UpdateRule("SGD", 1))


def exported(net, costs=None):
    return graph_file(graph_of(net), costs)


def named(file, ids):
    return [file.variables[i].name for i in ids]


def test_values_parameters_and_inputs_differ_in_their_names():
    file = exported("chain")
    names = [v.name for v in file.variables]
    assert {"/conv1.w0", "/conv1.w1", "/conv2.w0", "/score.w1"} < set(names)
    assert names.count("0") == names.count("1") == 1  # data and label
    assert set(names) - {"_", "0", "1"} == {name for name in names if name.startswith("/")}


def test_a_layer_reads_its_bottoms_and_parameters_and_its_backward_adds_to_their_gradients():
    file = exported("chain")
    conv2 = next(i for i, f in enumerate(file.forward) if "/conv2.w0" in named(file, [v for v, _ in f.reads]))
    forward, backward = file.forward[conv2], file.backward[conv2]
    (pool,) = (v for v, _ in forward.reads if file.variables[v].is_value)
    assert named(file, [v for v, _ in forward.reads]) == ["_", "/conv2.w0", "/conv2.w1"]
    assert set(backward.writes) == {v for v, _ in forward.reads}
    assert (forward.writes[0], "gradient") in backward.reads and (pool, "input") in backward.reads
    assert backward.type_name == forward.type_name == "Convolution"


def test_the_backward_of_a_tanh_reads_its_output_and_no_input():
    file = exported("dropout")
    tanh = next(i for i, f in enumerate(file.forward) if f.type_name == "TanH")
    output = file.forward[tanh].writes[0]
    assert set(file.backward[tanh].reads) == {(output, "gradient"), (output, "output")}


def test_the_data_need_no_gradient():
    file = exported("chain")
    inputs = {i for i, v in enumerate(file.variables) if v.name in ("0", "1")}
    assert not any(inputs & set(f.writes) for f in file.backward)


def test_a_function_takes_what_its_ops_do_and_without_costs_says_nothing():
    graph, file = graph_of("chain"), exported("chain", COSTS)
    assert {f.seconds for f in (*exported("chain").forward, *exported("chain").backward)} == {None}
    ops = [op for op in graph.ops if op.kind == FORWARD and op.node >= 0 and op.reads and op.writes]
    assert len(ops) == len(file.forward)
    for op, forward, backward in zip(ops, file.forward, file.backward):
        again = [COSTS.op(step) for step in graph.ops if step.kind == BACKWARD and step.node == op.node]
        assert forward.seconds == pytest.approx(COSTS.op(op)) and backward.seconds == pytest.approx(sum(again))


@pytest.mark.parametrize("costs", [None, COSTS], ids=["authors", "seconds"])
@pytest.mark.parametrize("net", NETS)
def test_an_exported_net_reads_back_and_its_plan_runs(net, costs):
    file = exported(net, costs)
    assert parse_graph(format_graph(file)).costs() == file.costs()
    assert format_graph(parse_graph(format_graph(file))) == format_graph(file)
    plan = GraphPlanner(file).plan()
    peak, cost = run_schedule(file, plan.schedule)
    assert peak <= plan.peak_bytes and cost == plan.cost_forward + plan.cost_recomputed


def test_updates_and_the_feed_are_left_out():
    """A chain of three layers with parameters exports as three functions, and every variable with its bytes."""
    file = graph_file(chain(3, parameters=True))
    assert [named(file, f.writes) for f in file.forward] == [["_"]] * 3
    assert [v.name for v in file.variables] == ["0", "_", "_", "_", "/w1", "/w2", "/w3"]
    assert {v.bytes for v in file.variables} == {1024}
