"""Which poolings and LRNs do the backward of the ReLU before them, and how."""

import pytest

from layermem.backends.base import get_device
from layermem.backends.cuda import CudaDevice
from layermem.graph.net import Net
from layermem.graph.optional_fusions import fused_in
from layermem.graph.sections import BackwardRange, Section, section_graph
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import Rule, diff_buffer, train_graph
from layermem.ops import LRN_RELU, MASKED_POOL, POOL_RELU
from layermem.proto.read import read_net_text
from tests.nets import DATA, LOSS, conv, norm, relu

SGD = Rule("SGD", 1)
SUM = 'layer {{ name: "{0}" type: "Eltwise" bottom: "{1}" bottom: "{2}" top: "{0}" }}'
ONE = DATA + conv("one", "data", 8, 3) + relu("one")
Y, MASK = 4 * 8 * 6 * 5 * 4, 4 * 8 * 6 * 5 // 8  # bytes of one


def pool(settings: str = "kernel_size: 2 stride: 2", bottom: str = "one", more: str = "") -> str:
    return (
        f'layer {{ name: "pool" type: "Pooling" bottom: "{bottom}" top: "pool" {more} pooling_param {{ {settings} }} }}'
    )


MAX = ONE + pool() + LOSS % "pool"
AVE = ONE + pool("pool: AVE kernel_size: 2 stride: 2") + LOSS % "pool"
LRN = ONE + 'layer { name: "lrn" type: "LRN" bottom: "one" top: "lrn" lrn_param { local_size: 3 } }' + LOSS % "lrn"
FORKED = ONE + pool("kernel_size: 3 stride: 1 pad: 1") + conv("two", "one", 8, 1)
FORKED += SUM.format("sum", "two", "pool") + LOSS % "sum"  # two keeps one', the last gradient is of pool
SKIPPED = ONE + pool("kernel_size: 3 stride: 1 pad: 1") + SUM.format("sum", "one", "pool") + LOSS % "sum"


class Apart(CudaDevice):
    fusions = CudaDevice.fusions - {POOL_RELU, LRN_RELU, MASKED_POOL}


def net_of(text):
    return Net(read_net_text(text), 0)


def graph_of(text, device=None, **options):
    return train_graph(net_of(text), device or CudaDevice(), SGD, **options)


def relus(graph):
    return [op.layer_name for op in graph.ops if op.step == "relu_backward"]


def forms(graph):
    """The ops that do the backward of a ReLU, and whether they read a mask."""
    named = {op.name for op in graph.ops if getattr(op.record, "bottom_relu", False)}
    masked = {op.name for op in graph.ops if "relu_mask" in op.roles}
    return named, masked


def test_max_pooling_names_no_element_of_a_window_that_the_relu_cleared():
    graph = graph_of(MAX)
    assert forms(graph) == ({"pool.forward", "pool.backward"}, set()) and relus(graph) == []
    assert "one+one_relu.mask" not in graph.buffers
    assert graph.by_name["pool.forward"].recompute.record.bottom_relu


def test_such_a_step_moves_the_gradient_and_the_mask_less():
    before, after = (sum(op.nbytes for op in graph_of(MAX, device).ops) for device in (Apart(), CudaDevice()))
    assert before - after == 2 * Y + 2 * MASK


def test_average_pooling_reads_the_mask():
    graph = graph_of(AVE)
    assert forms(graph) == (set(), {"pool.backward"}) and relus(graph) == []
    assert "one+one_relu.mask" in graph.by_name["pool.backward"].reads
    before, after = (sum(op.nbytes for op in graph_of(AVE, device).ops) for device in (Apart(), CudaDevice()))
    assert before - after == 2 * Y


def test_an_lrn_reads_what_the_relu_made():
    graph = graph_of(LRN)
    assert forms(graph) == ({"lrn.forward", "lrn.backward"}, set()) and relus(graph) == []
    assert "one+one_relu.mask" not in graph.buffers
    before, after = (sum(op.nbytes for op in graph_of(LRN, device).ops) for device in (Apart(), CudaDevice()))
    assert before - after == 3 * Y


def test_max_pooling_that_adds_to_another_gradient_masks_the_sum():
    graph = graph_of(SKIPPED)
    assert forms(graph) == (set(), {"pool.backward"}) and relus(graph) == []
    assert graph.by_name["pool.backward"].accumulates == ("dx0",)


@pytest.mark.parametrize("text", [MAX, AVE, LRN, SKIPPED], ids=["MAX", "AVE", "LRN", "skipped"])
def test_no_strategy_needs_a_byte_more(text):
    before, after = graph_of(text, Apart()), graph_of(text)
    assert {b.name for b in after.buffers.values()} <= {b.name for b in before.buffers.values()}
    assert all(after.buffers[name].nbytes == before.buffers[name].nbytes for name in after.buffers)
    assert fused_in(after) == ()
    for device in ("cpu", "reference"):
        assert forms(graph_of(text, get_device(device))) == (set(), set())


@pytest.mark.parametrize(
    "text",
    [
        FORKED,
        MAX.replace('top: "pool" ', 'top: "pool" top: "mask" ', 1).replace("num_output: 8", "num_output: 4"),
        MAX.replace('type: "ReLU"', 'type: "ReLU" relu_param { negative_slope: 0.1 }'),
        MAX.replace('top: "one" }', 'top: "one" loss_weight: 2 }'),
        AVE.replace("num_output: 8", "num_output: 12", 1),
        ONE.replace(relu("one"), norm("one") + relu("one")) + pool() + LOSS % "pool",
    ],
    ids=["y is kept", "the mask of a pooling", "a slope", "a weight", "bytes of two pixels", "of a BatchNorm"],
)
def test_other_gradients_are_cleared_by_an_op_of_their_own(text):
    graph = graph_of(text)
    assert forms(graph) == (set(), set())
    assert [op.kernel for op in graph.ops if op.step == "relu_backward"] == [
        op.kernel for op in graph_of(text, Apart()).ops if op.step == "relu_backward"
    ]


def test_an_index_of_a_byte_has_a_value_for_none_beside_255_taps():
    wide = MAX.replace("dim: 6 dim: 5", "dim: 16 dim: 16")
    some = graph_of(wide.replace("kernel_size: 2", "kernel_h: 15 kernel_w: 16"))
    every = graph_of(wide.replace("kernel_size: 2", "kernel_size: 16"))
    assert forms(some)[0] == {"pool.forward", "pool.backward"} and forms(every) == (set(), {"pool.backward"})
    assert {graph.buffers["pool.argmax"].tensor.dtype for graph in (some, every)} == {"uint8"}


@pytest.mark.parametrize("text", [MAX, AVE, LRN])
def test_the_gradient_of_a_relu_in_place_is_found_where_it_was(text):
    graphs = [graph_of(text, device) for device in (Apart(), CudaDevice())]
    assert [diff_buffer(net_of(text), "one", graph) for graph in graphs] == ["one'.diff", "one'.diff"]


def test_a_section_that_ends_between_the_two_or_is_fed_clears_nothing():
    net = net_of(MAX)
    names = [layer.name for layer in net.layers]
    last = len(names) - 1

    def section(end: str, fed: tuple[str, ...] = ()):
        backward = BackwardRange(last, names.index(end), fed)
        return section_graph(net, CudaDevice(), Section(0, last, backward), gradients=True)

    assert forms(section("one"))[0] and not any(forms(section("pool")))
    assert forms(section("one", ("one'",))) == (set(), {"pool.backward"})  # the sum of both is cleared


@pytest.mark.parametrize("text", [MAX, AVE, LRN])
@pytest.mark.parametrize("cut", ["one..one_relu/2", "..pool/2", "pool/2", "whole/4"])
def test_slices_do_the_same(text, cut):
    def make(net):
        return train_graph(net, CudaDevice(), SGD)

    layers = cut.replace("pool", "lrn") if text == LRN else cut
    graph = sliced_graph(net_of(text), make, Cut.parse(layers), CudaDevice())
    assert relus(graph) == []
    names = {op.name.partition("@")[0] for op in graph.ops if getattr(op.record, "bottom_relu", False)}
    assert names == forms(make(net_of(text)))[0]
