"""The rules of a graph: graphs of all passes keep them, and one that is broken by hand is named."""

from dataclasses import replace

import pytest

from layermem.backends.base import get_device
from layermem.backends.cuda import CudaDevice
from layermem.graph import validate
from layermem.graph.net import Net
from layermem.graph.ops import Graph
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import UpdateRule, train_graph
from layermem.graph.validate import InvalidGraph, validated, violations
from layermem.ops import BatchSlice
from layermem.planning.partition_choices import CHOICES
from layermem.proto.read import read_net_text
from tests.nets import NETS

SGD = UpdateRule("SGD", 1)


def graph_of(name: str, device: str) -> Graph:
    return train_graph(Net(read_net_text(NETS[name]), 0), get_device(device), SGD)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", NETS)
def test_the_step_of_a_net_keeps_all_rules(name, device):
    assert violations(graph_of(name, device)) == []


@pytest.mark.parametrize("cut", ["whole/2", "..pool1/4"])
def test_a_step_in_slices_keeps_all_rules(cut):
    net = Net(read_net_text(NETS["chain"]), 0)
    graph = sliced_graph(net, lambda each: train_graph(each, CudaDevice(), SGD), Cut.parse(cut), CudaDevice(), CHOICES)
    assert violations(graph) == []


def test_an_op_may_add_to_a_gradient_that_another_role_of_it_writes():
    text = """
name: "twice"
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "ip" bottom: "ip" top: "sum" }
layer { name: "loss" type: "Reduction" bottom: "sum" top: "loss" loss_weight: 1 }
"""
    graph = train_graph(Net(read_net_text(text), 0), get_device("cpu"), SGD)
    assert any(op.accumulates and not op.updates for op in graph.ops)
    assert violations(graph) == []


GRAPH = graph_of("chain", "cpu")


def with_op(number: int, **changes: object) -> Graph:
    ops = list(GRAPH.ops)
    ops[number] = replace(ops[number], **changes)
    return replace(GRAPH, ops=tuple(ops))


def with_buffer(listed: str, **changes: object) -> Graph:
    return replace(GRAPH, buffers={**GRAPH.buffers, listed: replace(GRAPH.buffers["data"], **changes)})


CONV = next(
    number for number, op in enumerate(GRAPH.ops) if op.step == "forward" and op.layer_type.startswith("Convolution")
)
BACK = next(number for number, op in enumerate(GRAPH.ops) if op.step == "wgrad")
BROKEN = {
    "two ops are called": with_op(CONV, name=GRAPH.ops[0].name),
    "is listed as 'other'": with_buffer("other"),
    "has -1 bytes": with_buffer("data", nbytes=-1),
    "no op touches buffer 'spare'": with_buffer("spare", name="spare"),
    "which is no buffer of the graph": replace(GRAPH, buffers={k: b for k, b in GRAPH.buffers.items() if k != "data"}),
    "declares 'data' 2 times": with_op(CONV, updates=("data",)),
    "declares 'data' 0 times": with_op(CONV, reads=GRAPH.ops[CONV].reads[1:]),
    "which none of its roles has": with_op(CONV, reads=(*GRAPH.ops[CONV].reads, "label")),
    "which it does not update": with_op(BACK, accumulates=("dw0",)),
    "which is no role of its": with_op(CONV, views={"x9": BatchSlice(0, 1, 4)}),
    "has items 3..4 of 4 of 'data'": with_op(CONV, views={"x0": BatchSlice(3, 2, 4)}),
    "before an op writes it": replace(GRAPH, ops=(*GRAPH.ops[1:], GRAPH.ops[0])),
    "which is no op of the graph": replace(
        GRAPH, fused_updates=(replace(GRAPH.ops[BACK], name="both", covers=("none",)),)
    ),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_graph_that_breaks_a_rule_is_named(sentence):
    assert any(sentence in each for each in violations(BROKEN[sentence]))


def test_passes_validate_where_that_is_asked_for(monkeypatch):
    broken = BROKEN["before an op writes it"]
    monkeypatch.setattr(validate, "is_on", False)
    assert validated(broken) is broken
    monkeypatch.setattr(validate, "is_on", True)
    assert validated(GRAPH) is GRAPH
    with pytest.raises(InvalidGraph, match="before an op writes it"):
        validated(broken)
