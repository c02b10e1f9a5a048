"""What the rules of graph/rewrite.py make of a graph, and which ops they leave as they are."""

import pytest

from layermem.backends.base import get_device
from layermem.backends.cpu import CpuDevice
from layermem.backends.cuda import CudaDevice
from layermem.graph.layer_ranges import BackwardRange, LayerRange, range_graph
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, FORWARD, GRADIENT, Graph
from layermem.graph.rewrite import rewrite
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import UpdateRule, diff_buffer, forward_graph, train_graph
from layermem.graph.validate import violations
from layermem.ops import CONV_MOMENTS, DGRAD_SUMS_FUSION, MASKED_DGRAD, NORM_OPERANDS
from layermem.planning.costs import Costs, model_costs
from layermem.planning.partition_choices import CHOICES
from layermem.planning.plan import Plan
from layermem.proto.read import read_net_text
from layermem.utils.units import aligned
from tests.compiling import compile
from tests.nets import DATA, LOSS, NETS, conv, norm, relu

SGD, ADAM = UpdateRule("SGD", 1), UpdateRule("Adam", 2)
ROWS = 4 * 6 * 5  # of 128: one unit
SUM = 'layer {{ name: "{0}" type: "Eltwise" bottom: "{1}" bottom: "{2}" top: "{0}" }}'
POOL = 'layer { name: "p" type: "Pooling" bottom: "a" top: "p" pooling_param { kernel_size: 2 } }'
ONE = DATA + conv("a", "data", 8, 3) + norm("a") + relu("a")
TWO = ONE + conv("b", "a", 8, 3) + norm("b") + LOSS % "b"
THREE = ONE + conv("b", "a", 8, 3) + norm("b") + conv("c", "b", 8, 3) + LOSS % "c"
CHAIN = DATA + conv("one", "data", 8, 3) + relu("one") + conv("two", "one", 8, 3) + relu("two") + LOSS % "two"


def net_of(text: str) -> Net:
    return Net(read_net_text(text), 0)


def without(*fusions: str) -> CudaDevice:
    """A device that does not run them."""
    device = CudaDevice()
    device.fusions = device.fusions.difference(fusions)
    return device


def graph_of(text: str, device: CudaDevice | None = None) -> Graph:
    device = device or CudaDevice()
    return rewrite(train_graph(net_of(text), device, SGD), device)


def in_slices(text: str, cut: str) -> Graph:
    device = CudaDevice()
    return rewrite(
        sliced_graph(net_of(text), lambda net: train_graph(net, device, SGD), Cut.parse(cut), device, CHOICES), device
    )


# ---- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, "whole/2", "a_bn../2"])
def test_a_rewritten_graph_is_valid_and_says_what_its_ops_take(cut):
    graph = graph_of(THREE) if cut is None else in_slices(THREE, cut)
    steps = [graph]
    while steps[-1].less_fused is not None:
        steps.append(steps[-1].less_fused)
    for step in steps:
        assert violations(step) == []
        for op in step.ops:
            assert op.workspace_bytes == CudaDevice().workspace_bytes(op.record, op.step, op.roles.keys())


def test_less_fused_steps_omit_the_rules_that_extend_an_input_and_then_all_rules():
    text = DATA + conv("a", "data", 8, 3) + relu("a") + conv("b", "a", 8, 3) + norm("b") + conv("c", "b", 8, 3)
    graph = graph_of(text + LOSS % "c")
    less = graph.less_fused
    assert graph.not_fused == () and less.not_fused == (DGRAD_SUMS_FUSION,)
    assert less.less_fused.not_fused == (MASKED_DGRAD, DGRAD_SUMS_FUSION, CONV_MOMENTS)
    assert less.less_fused.less_fused is None
    plain = train_graph(net_of(text + LOSS % "c"), CudaDevice(), SGD)
    assert less.less_fused.ops == plain.ops and less.less_fused.buffers == plain.buffers
    for device in ("cpu", "reference"):
        plain = train_graph(net_of(text + LOSS % "c"), get_device(device), SGD)
        assert rewrite(plain, get_device(device)) is plain


# ---- moments ---------------------------------------------------------------------------------------------------------


def moments(graph):
    return {op.name: op.roles["moments"] for op in graph.ops if "moments" in op.roles}


def test_a_convolution_leaves_moments_that_the_batch_norm_behind_it_reads():
    graph = graph_of(TWO)
    assert list(moments(graph).values()) == ["a.moments"] * 2 + ["b.moments"] * 2
    maker, reader = (op for op in graph.ops if op.roles.get("moments") == "a.moments")
    assert maker.name == "a.forward" and "a.moments" in maker.writes
    assert reader.layer_type == "BatchNormScale" and "a.moments" in reader.reads
    assert graph.buffers["a.moments"].nbytes == 4 * 2 * 8 * -(-ROWS // 128)


def test_a_recomputed_op_neither_leaves_nor_reads_moments():
    for op in graph_of(TWO).of_kind(FORWARD):
        assert op.recompute is None or "moments" not in op.recompute.roles


def test_the_batch_norm_has_no_workspace_for_moments():
    graphs = [graph_of(TWO, device) for device in (without(CONV_MOMENTS), CudaDevice())]
    before, after = (next(op for op in graph.ops if op.layer_type == "BatchNormScale") for graph in graphs)
    assert before.workspace_bytes - after.workspace_bytes == graphs[1].buffers["a.moments"].nbytes
    assert not moments(graphs[0])


@pytest.mark.parametrize(
    "text",
    [
        DATA + conv("a", "data", 8, 3) + relu("a") + norm("a") + LOSS % "a",
        DATA + conv("a", "data", 8, 3) + POOL + norm("p") + LOSS % "p",
        TWO.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true }'),
    ],
    ids=["of a ReLU", "of a pooling", "averages"],
)
def test_other_inputs_are_read_for_their_statistics(text):
    assert not moments(graph_of(text))


def test_a_test_net_has_moments_only_if_it_normalizes_by_the_batch():
    text = TWO.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: false }')
    by_batch, by_averages = (
        rewrite(forward_graph(net, CudaDevice()), CudaDevice()) for net in (net_of(text), Net(read_net_text(TWO), 1))
    )
    assert moments(by_batch) and not moments(by_averages)


@pytest.mark.parametrize("cut, left", [("a/2", ["b.moments"]), ("..b/2", []), ("b../2", ["a.moments"])])
def test_slices_and_what_touches_them_have_no_moments(cut, left):
    graph = in_slices(TWO, cut)
    assert list(dict.fromkeys(moments(graph).values())) == left
    assert {name for name in graph.buffers if name.endswith(".moments")} == set(left)
    for op in graph.ops:
        needed = CudaDevice().workspace_bytes(op.record, op.step, op.roles.keys())
        assert op.workspace_bytes == needed and set(op.roles.values()) == set(op.touches)


def test_the_residual_test_net_has_moments():
    assert moments(graph_of(NETS["residual"]))


# ---- sums ------------------------------------------------------------------------------------------------------------

RESIDUAL = DATA + conv("a", "data", 8, 3) + conv("b", "a", 8, 3) + norm("b") + SUM.format("s", "a", "b") + relu("s")


def sums(graph):
    """The layers of the ops that leave or read sums, in their order."""
    return [op.layers[0] for op in graph.ops if "norm_sums" in op.roles]


def test_a_dgrad_leaves_sums_that_the_batch_norm_before_it_reads():
    graph = graph_of(THREE)
    assert sums(graph) == ["c", "b_bn", "b", "a_bn"]
    maker, reader = (op for op in graph.ops if op.roles.get("norm_sums") == "b.norm_sums")
    assert maker.name == "b.dgrad" and "b.norm_sums" in maker.writes and "a" in maker.reads
    assert reader.layer_type == "BatchNormScale" and "b.norm_sums" in reader.reads
    assert graph.buffers["b.norm_sums"].nbytes == 4 * 2 * 8 * -(-ROWS // 128)


def test_a_relu_of_the_batch_norm_is_recomputed_from_factor_and_bias():
    last, first = (op for op in graph_of(THREE).ops if "norm_x" in op.roles)
    assert [role for role in NORM_OPERANDS if role in last.roles] == ["norm_x", "norm_mean", "norm_inv_std"]
    assert [role for role in NORM_OPERANDS if role in first.roles] == list(NORM_OPERANDS)


def test_a_relu_behind_a_sum_is_masked_by_the_same_dgrad():
    text = RESIDUAL + conv("c", "s", 8, 3) + LOSS % "c"
    (maker, _) = (op for op in graph_of(text).ops if "norm_sums" in op.roles)
    assert maker.name == "c.dgrad" and "bottom_mask" in maker.roles and "norm_factor" not in maker.roles
    assert sums(graph_of(text, without(MASKED_DGRAD))) == []


def test_the_last_op_to_add_to_a_gradient_leaves_the_sums():
    graph = graph_of(ONE + conv("c", "a", 8, 3) + conv("d", "a", 8, 3) + SUM.format("s", "c", "d") + LOSS % "s")
    assert sums(graph) == ["c", "a_bn"]
    (maker, *_) = (op for op in graph.ops if "norm_sums" in op.roles)
    assert maker.accumulates == ("dx0",)


@pytest.mark.parametrize(
    "text",
    [
        ONE + POOL + LOSS % "p",
        ONE + conv("b", "a", 8, 3).replace("kernel_size", "stride: 2 kernel_size") + LOSS % "b",
        (ONE + conv("b", "a", 8, 3) + LOSS % "b").replace('top: "a" }', 'top: "a" loss_weight: 1 }'),
    ],
    ids=["of a pooling", "of phases", "with a weight in the loss"],
)
def test_other_gradients_are_read_for_their_sums(text):
    assert sums(graph_of(text)) == []


def test_the_batch_norm_has_no_workspace_for_sums():
    graphs = [graph_of(THREE, device) for device in (without(DGRAD_SUMS_FUSION), CudaDevice())]
    before, after = (
        next(op for op in graph.ops if op.name.startswith("a_bn") and op.step == "backward") for graph in graphs
    )
    assert before.workspace_bytes == aligned(graphs[1].buffers["b.norm_sums"].nbytes) and after.workspace_bytes == 0
    assert sums(graphs[0]) == []


@pytest.mark.parametrize(
    "cut, left", [("a/2", ["c", "b_bn", "b", "a_bn"]), ("b/2", ["c", "b_bn"]), ("..c/2", []), ("c/2", ["b", "a_bn"])]
)
def test_slices_and_what_touches_them_have_no_sums(cut, left):
    graph = in_slices(THREE, cut)
    assert sums(graph) == left
    for op in graph.ops:
        needed = CudaDevice().workspace_bytes(op.record, op.step, op.roles.keys())
        assert op.workspace_bytes == needed and set(op.roles.values()) == set(op.touches)


# ---- masks -----------------------------------------------------------------------------------------------------------


def masked(graph):
    return {op.name: op.roles["bottom_mask"] for op in graph.ops if "bottom_mask" in op.roles}


def relus(graph):
    return [op.layer_name for op in graph.ops if op.step == "relu_backward"]


def test_the_convolution_behind_a_relu_does_its_backward():
    graph = graph_of(CHAIN)
    assert masked(graph) == {"two+two_relu.dgrad": "one+one_relu.mask"}
    assert relus(graph) == ["two+two_relu"]  # its gradient comes from an inner product
    dgrad = graph.by_name["two+two_relu.dgrad"]
    assert "one+one_relu.mask" in dgrad.reads and "one'" not in dgrad.reads


def test_a_device_without_the_fused_op_gets_two():
    graph = graph_of(CHAIN, without(MASKED_DGRAD))
    assert not masked(graph) and relus(graph) == ["two+two_relu", "one+one_relu"]
    assert "one+one_relu.mask" not in graph.buffers  # the sign of y, which wgrad keeps


def test_a_step_reads_and_writes_the_gradient_twice_less():
    before, after = (
        sum(op.nbytes for op in graph_of(CHAIN, device).ops) for device in (without(MASKED_DGRAD), CudaDevice())
    )
    y, mask = 4 * 8 * 6 * 5 * 4, 4 * 8 * 6 * 5 // 8
    assert before - after == 3 * y - 2 * mask


def test_the_gradient_of_a_sum_is_masked_by_what_adds_to_it_last():
    block = conv("a", "one", 8, 1) + norm("a") + SUM.format("s", "one", "a") + relu("s")
    after = conv("b", "s", 8, 1) + norm("b") + SUM.format("t", "s", "b") + relu("t") + LOSS % "t"
    graph = graph_of(DATA + conv("one", "data", 8, 3) + relu("one") + block + after)
    assert set(masked(graph)) == {"a.dgrad", "b.dgrad"}
    for name in masked(graph):
        op = graph.by_name[name]
        later = graph.ops[graph.position[name] + 1 :]
        assert op.accumulates == ("dx0",)
        assert not any(op.roles["dx0"] in (*each.updates, *each.writes) for each in later)


POOLED = 'layer { name: "pool" type: "Pooling" bottom: "one" top: "pool" pooling_param { kernel_size: 2 } }'
TWICE = conv("two", "one", 8, 1) + SUM.format("s", "two", "one") + LOSS % "s"


@pytest.mark.parametrize(
    "text",
    [
        CHAIN.replace("num_output: 8", "num_output: 12", 1),
        CHAIN.replace('bottom: "one" top: "two"', 'bottom: "one" bottom: "one" top: "two" top: "three"'),
        DATA + conv("one", "data", 8, 3) + relu("one") + POOLED + conv("two", "pool", 8, 1) + LOSS % "two",
        DATA
        + conv("one", "data", 8, 3)
        + relu("one")
        + POOLED
        + conv("two", "one", 8, 1)
        + SUM.format("s", "two", "two")
        + LOSS % "s"
        + (LOSS % "pool").replace("score", "more").replace('"loss"', '"last"').replace("accuracy", "acc"),
        DATA + conv("one", "data", 8, 3) + relu("one") + TWICE,
        CHAIN.replace('type: "ReLU"', 'type: "ReLU" relu_param { negative_slope: 0.1 }', 1),
    ],
    ids=["bytes of two pixels", "two bottoms", "no convolution", "another is last", "read twice", "a slope"],
)
def test_other_gradients_are_masked_by_an_op_of_their_own(text):
    graph = graph_of(text)
    assert "one+one_relu.mask" not in masked(graph).values()


def test_the_gradient_of_a_relu_with_a_weight_in_the_loss_is_masked_behind_that_weight():
    graph = graph_of(CHAIN.replace('top: "one" }', 'top: "one" loss_weight: 2 }'))
    order = [op.name for op in graph.ops]
    assert not masked(graph) and "one+one_relu" in relus(graph)
    assert order.index("two+two_relu.dgrad") < order.index("one'.seed") < order.index("one+one_relu.relu_backward")


def test_a_backward_that_ends_before_the_relu_masks_no_gradient():
    net = net_of(CHAIN)
    names = [layer.name for layer in net.layers]
    end = len(names)

    def graph_down_to(layer: str):
        return range_graph(
            net, CudaDevice(), LayerRange(0, end, BackwardRange(names.index(layer), end)), gradients=True
        )

    assert masked(graph_down_to("one")) and not masked(graph_down_to("two"))


def test_the_gradient_of_a_relu_in_place_is_found_where_it_was():
    net = net_of(CHAIN)
    found = [diff_buffer(net, "one", graph_of(CHAIN, device)) for device in (without(MASKED_DGRAD), CudaDevice())]
    assert found == ["one'.diff", "one'.diff"]


# ---- updates ---------------------------------------------------------------------------------------------------------


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


def updated_graph(text, device=None, rule=ADAM, **options):
    return train_graph(Net(read_net_text(text), 0), device or CpuDevice(), rule, **options)


def fused_updates(text, **options):
    return {fused.name: fused.covers for fused in updated_graph(text, **options).fused_updates}


BOTH = ("fc.wgrad", "fc.w0.update")


def test_a_fused_update_reads_what_the_gradient_reads_and_moves_what_the_update_moves():
    graph = updated_graph(wide())
    fused = graph.by_name["fc.backward_update"]
    assert fused.covers == BOTH and fused.kind == BACKWARD
    assert fused.reads == ("x", "fc.diff") and fused.writes == ("fc.w1.diff",)
    assert fused.updates == ("fc.w0", "fc.w0.h0", "fc.w0.h1")
    assert fused.flops == sum(graph.by_name[name].flops for name in BOTH)
    assert fused not in graph.ops


def test_the_step_with_fused_updates_has_them_where_the_updates_were_and_no_such_gradients():
    graph = updated_graph(wide())
    learns = {BOTH[1]: "fc.backward_update", "score.w0.update": "score.backward_update"}
    fused = graph.with_fused_updates(frozenset(learns.values()))
    assert [op.name for op in fused.ops] == [
        learns.get(op.name, op.name) for op in graph.ops if not op.name.endswith("wgrad")
    ]
    assert "fc.w0.diff" in graph.buffers and "fc.w0.diff" not in fused.buffers
    assert {b.name for b in fused.buffers.values() if b.kind == GRADIENT} >= {"fc.w1.diff"}


def test_a_fused_update_that_is_not_selected_stays_two_ops():
    graph = updated_graph(wide())
    fused = graph.with_fused_updates(frozenset({"score.backward_update"}))
    assert "fc.w0.diff" in fused.buffers and "score.w0.diff" not in fused.buffers


def test_an_inner_product_fused_with_its_relu_has_a_fused_update():
    relu = 'layer { name: "r" type: "ReLU" bottom: "fc" top: "fc" }'
    assert fused_updates(wide(after=relu))["fc+r.backward_update"] == ("fc+r.wgrad", "fc.w0.update")


def test_a_fused_update_reads_an_image_in_the_order_of_the_weight():
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
def test_no_fused_update_if_another_op_uses_the_gradient(text):
    assert not [name for name in fused_updates(text) if not name.startswith("score")]


@pytest.mark.parametrize("options", [{"clip": True}, {"rule": None}])
def test_no_fused_update_if_the_whole_gradient_is_needed(options):
    assert fused_updates(wide(), **options) == {}


def test_no_fused_update_on_a_device_without_its_kernel():
    assert fused_updates(wide(), device=get_device("reference")) == {}


def test_auto_runs_fused_updates_and_the_strategies_of_the_papers_do_not():
    graph = updated_graph(wide())
    for strategy in ("auto", "liveness", "caffe", "hybrid", "recompute"):
        order = compile([graph], strategy=strategy).train.plan.order
        assert ("fc.backward_update" in order) == (strategy == "auto") == (BOTH[0] not in order)


def test_the_largest_gradient_no_longer_counts():
    graph = updated_graph(wide("num_output: 4096"))
    apart, joined = (compile([graph], strategy=name).arena_bytes for name in ("liveness", "auto"))
    assert apart - joined >= 0.9 * graph.buffers["fc.w0.diff"].nbytes


def test_a_plan_with_a_fused_update_is_saved_and_read_again():
    graph = updated_graph(wide())
    plan = compile([graph], strategy="auto").train.plan
    assert Plan.from_json(plan.to_json(graph), graph) == plan
    plan.validate(graph)
    with pytest.raises(ValueError, match=r"never runs 'fc\.wgrad'"):
        Plan("auto", tuple(name for name in plan.order if name != "fc.backward_update")).validate(graph)


def test_a_fused_update_costs_the_measured_seconds_of_both_its_ops():
    graph = updated_graph(wide())
    costs = Costs(model_costs("cpu").rates, {BOTH[0]: 2.0, BOTH[1]: 0.5})
    assert costs.op(graph.by_name["fc.backward_update"]) == 2.5
    half = Costs(model_costs("cpu").rates, {BOTH[0]: 2.0})
    assert half.op(graph.by_name["fc.backward_update"]) == model_costs("cpu").op(graph.by_name["fc.backward_update"])
