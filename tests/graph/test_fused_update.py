"""Ops that join a weight gradient with its update: where they are offered, and what they stand for."""

import pytest

from layermem.backends.base import get_device
from layermem.backends.cpu import CpuDevice
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, GRADIENT
from layermem.graph.train import Rule, train_graph
from layermem.planning.costs import Costs, model_costs
from layermem.planning.pipeline import compile
from layermem.planning.plan import Plan
from layermem.proto.read import read_net_text

ADAM = Rule("Adam", 2)


def wide(settings="num_output: 64", *, shape="dim: 4 dim: 90", more="", top='top: "fc"', after=""):
    """An InnerProduct whose weight has more bytes than what it reads."""
    return f"""
    layer {{ name: "in" type: "Input" top: "x" top: "label"
             input_param {{ shape {{ {shape} }} shape {{ dim: 4 }} }} }}
    layer {{ name: "fc" type: "InnerProduct" bottom: "x" {top} {more} inner_product_param {{ {settings} }} }}
    {after}
    layer {{ name: "score" type: "InnerProduct" bottom: "fc" top: "score" inner_product_param {{ num_output: 5 }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }}
    """


def graph_of(text, device=None, rule=ADAM, **options):
    return train_graph(Net(read_net_text(text), 0), device or CpuDevice(), rule, **options)


def fused_updates(text, **options):
    return {fused.name: fused.covers for fused in graph_of(text, **options).fused_updates}


BOTH = ("fc.wgrad", "fc.w0.update")


def test_a_fused_update_reads_what_the_gradient_reads_and_moves_what_the_update_moves():
    graph = graph_of(wide())
    fused = graph.by_name["fc.backward_update"]
    assert fused.covers == BOTH and fused.kind == BACKWARD
    assert fused.reads == ("x", "fc.diff") and fused.writes == ("fc.w1.diff",)
    assert fused.updates == ("fc.w0", "fc.w0.h0", "fc.w0.h1")
    assert fused.flops == sum(graph.by_name[name].flops for name in BOTH)
    assert fused not in graph.ops


def test_the_step_with_fused_updates_has_them_where_the_updates_were_and_no_such_gradients():
    graph = graph_of(wide())
    learns = {BOTH[1]: "fc.backward_update", "score.w0.update": "score.backward_update"}
    fused = graph.with_fused_updates(frozenset(learns.values()))
    assert [op.name for op in fused.ops] == [
        learns.get(op.name, op.name) for op in graph.ops if not op.name.endswith("wgrad")
    ]
    assert "fc.w0.diff" in graph.buffers and "fc.w0.diff" not in fused.buffers
    assert {b.name for b in fused.buffers.values() if b.kind == GRADIENT} >= {"fc.w1.diff"}


def test_the_fused_updates_that_are_not_named_stay_apart():
    graph = graph_of(wide())
    fused = graph.with_fused_updates(frozenset({"score.backward_update"}))
    assert "fc.w0.diff" in fused.buffers and "score.w0.diff" not in fused.buffers


def test_an_inner_product_fused_with_its_relu_has_one_too():
    relu = 'layer { name: "r" type: "ReLU" bottom: "fc" top: "fc" }'
    assert fused_updates(wide(after=relu))["fc+r.backward_update"] == ("fc+r.wgrad", "fc.w0.update")


def test_an_image_is_no_obstacle_where_the_weight_lies_like_it():
    assert "fc.backward_update" in fused_updates(wide(shape="dim: 4 dim: 10 dim: 3 dim: 3"))


@pytest.mark.parametrize(
    "text",
    [
        wide("num_output: 64 transpose: true"),
        wide(more="param { lr_mult: 0 }"),
        wide(
            more='param { name: "w" }',
            after="""
            layer { name: "again" type: "InnerProduct" bottom: "x" top: "b" param { name: "w" }
                    inner_product_param { num_output: 64 } }
            layer { name: "quiet" type: "EuclideanLoss" bottom: "b" bottom: "fc" top: "l" }""",
        ),
    ],
    ids=["transposed", "does not learn", "shared"],
)
def test_there_is_none_where_another_op_uses_the_gradient(text):
    assert not [name for name in fused_updates(text) if not name.startswith("score")]


@pytest.mark.parametrize("options", [{"clip": True}, {"rule": None}])
def test_there_is_none_where_the_gradient_must_be_there_as_a_whole(options):
    assert fused_updates(wide(), **options) == {}


def test_a_device_without_the_kernel_gets_none():
    assert fused_updates(wide(), device=get_device("reference")) == {}


def test_auto_runs_them_and_the_strategies_of_the_papers_do_not():
    graph = graph_of(wide())
    for strategy in ("auto", "liveness", "caffe", "hybrid", "recompute"):
        order = compile([graph], strategy=strategy).train.plan.order
        assert ("fc.backward_update" in order) == (strategy == "auto") == (BOTH[0] not in order)


def test_the_largest_gradient_no_longer_counts():
    graph = graph_of(wide("num_output: 4096"))
    apart, joined = (compile([graph], strategy=name).arena_bytes for name in ("liveness", "auto"))
    assert apart - joined >= 0.9 * graph.buffers["fc.w0.diff"].nbytes


def test_a_plan_with_one_is_saved_and_read_again():
    graph = graph_of(wide())
    plan = compile([graph], strategy="auto").train.plan
    assert Plan.from_json(plan.to_json(graph), graph) == plan
    plan.validate(graph)
    with pytest.raises(ValueError, match=r"never runs 'fc\.wgrad'"):
        Plan("auto", tuple(name for name in plan.order if name != "fc.backward_update")).validate(graph)


def test_costs_measured_of_both_are_the_costs_of_one():
    graph = graph_of(wide())
    costs = Costs(model_costs("cpu").rates, {BOTH[0]: 2.0, BOTH[1]: 0.5})
    assert costs.op(graph.by_name["fc.backward_update"]) == 2.5
    half = Costs(model_costs("cpu").rates, {BOTH[0]: 2.0})
    assert half.op(graph.by_name["fc.backward_update"]) == model_costs("cpu").op(graph.by_name["fc.backward_update"])
