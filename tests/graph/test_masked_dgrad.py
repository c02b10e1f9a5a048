"""Which data gradients end with the backward of a ReLU: those that write its gradient last."""

import pytest

from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.graph.sections import BackwardRange, Section, section_graph
from layermem.graph.train import Rule, diff_buffer, train_graph
from layermem.proto.read import read_net_text
from tests.nets import DATA, LOSS, conv, norm, relu

SGD = Rule("SGD", 1)
SUM = 'layer {{ name: "{0}" type: "Eltwise" bottom: "{1}" bottom: "{2}" top: "{0}" }}'
CHAIN = DATA + conv("one", "data", 8, 3) + relu("one") + conv("two", "one", 8, 3) + relu("two") + LOSS % "two"


class Unmasked(CudaDevice):
    fusions = CudaDevice.fusions - {"Conv.dgrad+relu"}


def net_of(text):
    return Net(read_net_text(text), 0)


def graph_of(text, device=None, **options):
    return train_graph(net_of(text), device or CudaDevice(), SGD, **options)


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
    graph = graph_of(CHAIN, Unmasked())
    assert not masked(graph) and relus(graph) == ["two+two_relu", "one+one_relu"]
    assert "one+one_relu.mask" not in graph.buffers  # the sign of y, which wgrad keeps


def test_a_step_reads_and_writes_the_gradient_twice_less():
    before, after = (sum(op.nbytes for op in graph_of(CHAIN, device).ops) for device in (Unmasked(), CudaDevice()))
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


POOL = 'layer { name: "pool" type: "Pooling" bottom: "one" top: "pool" pooling_param { kernel_size: 2 } }'
TWICE = conv("two", "one", 8, 1) + SUM.format("s", "two", "one") + LOSS % "s"


@pytest.mark.parametrize(
    "text",
    [
        CHAIN.replace("num_output: 8", "num_output: 12", 1),
        CHAIN.replace('bottom: "one" top: "two"', 'bottom: "one" bottom: "one" top: "two" top: "three"'),
        DATA + conv("one", "data", 8, 3) + relu("one") + POOL + conv("two", "pool", 8, 1) + LOSS % "two",
        DATA
        + conv("one", "data", 8, 3)
        + relu("one")
        + POOL
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


def test_a_section_that_ends_between_the_two_masks_nothing():
    net = net_of(CHAIN)
    names = [layer.name for layer in net.layers]
    last = len(names) - 1

    def section(to: str):
        return section_graph(net, CudaDevice(), Section(0, last, BackwardRange(last, names.index(to))), gradients=True)

    assert masked(section("one")) and not masked(section("two"))


def test_the_gradient_of_a_relu_in_place_is_found_where_it_was():
    net = net_of(CHAIN)
    found = [diff_buffer(net, "one", graph_of(CHAIN, device)) for device in (Unmasked(), CudaDevice())]
    assert found == ["one'.diff", "one'.diff"]
