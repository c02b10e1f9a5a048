"""LSTMs that read each other, in blocks of time steps: the graph, its bytes and its bits."""

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.ops import DATA
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import train_graph
from layermem.layers import recurrent
from layermem.planning.partition_choices import CHOICES
from layermem.proto.read import read_net_text
from layermem.runtime.runner import Runner
from tests.compiling import compile

STEPS, ITEMS, CELLS = 7, 2, 3


@pytest.fixture(autouse=True)
def blocks_of_two_steps(monkeypatch):
    monkeypatch.setattr(recurrent, "BLOCK_ROWS", 2 * ITEMS)


def net(kinds=("LSTM", "LSTM"), *, more="", reads=None):
    """Layers over time, each of the top of the one before; `reads` the blob that the loss reads, and `more` layers."""
    layers, x = "", "x"
    for number, kind in enumerate(kinds):
        layers += f"""
            layer {{ name: "l{number}" type: "{kind}" bottom: "{x}" bottom: "cont" top: "l{number}"
                recurrent_param {{ num_output: {CELLS} weight_filler {{ type: "uniform" min: -0.7 max: 0.7 }} }} }}"""
        x = f"l{number}"
    return Net(
        read_net_text(f"""
            layer {{ name: "in" type: "Input" top: "x" top: "cont"
                input_param {{ shape {{ dim: {STEPS} dim: {ITEMS} dim: {CELLS} }}
                               shape {{ dim: {STEPS} dim: {ITEMS} }} }} }}
            {layers} {more}
            layer {{ name: "loss" type: "Reduction" bottom: "{reads or x}" top: "loss" loss_weight: 1
                reduction_param {{ operation: SUMSQ }} }}"""),
        0,
    )


def blobs(graph):
    return {name for name, buffer in graph.buffers.items() if buffer.kind == DATA}


def gradients(made, device="cpu", **options):
    """The loss and the gradients of all parameters after one step."""
    plan = {name: options.pop(name) for name in ("strategy", "budget_bytes") if name in options}
    graph = train_graph(made, get_device(device), outputs=["loss"], **options)
    runner = Runner(compile([graph], **plan), get_device(device), {"seed": 1, "step": 0}, poison=True)
    rng = np.random.default_rng(5)
    learned = [name for name, owned in made.params.items() if owned.param.learned]
    for name in learned:
        runner.write(name, rng.uniform(-0.7, 0.7, made.params[name].param.shape))
        runner.zero(f"{name}.diff")
    cont = np.ones((STEPS, ITEMS), np.float32)
    cont[0] = cont[3, 1] = 0
    runner.context["batch"] = {"in": [rng.uniform(-1, 1, (STEPS, ITEMS, CELLS)).astype(np.float32), cont]}
    return [runner.run()["loss"].copy(), *(runner.read(f"{name}.diff").copy() for name in learned)]


def assert_same_bits(these, others):
    for one, other in zip(these, others, strict=True):
        assert one.any() and one.tobytes() == other.tobytes()


def test_a_blob_of_all_steps_between_two_layers_does_not_exist():
    graph = train_graph(net(), get_device("cpu"))
    assert "l0" not in blobs(graph) and "l0.diff" not in graph.buffers and "l1" in blobs(graph)
    assert [graph.buffers[f"l1/x_from_{t}"].tensor.shape[0] for t in (1, 3, 5)] == [2, 2, 3]


def test_the_layers_take_turns_block_by_block_forward_and_backward():
    graph = train_graph(net(), get_device("cpu"))
    units = [op.layer_name for op in graph.ops if op.layer_type == "LSTMUnit"]
    order = ["l0/unit_1", "l0/unit_2", "l1/unit_1", "l1/unit_2", "l0/unit_3", "l0/unit_4", "l1/unit_3"]
    assert units[:7] == order and units[-7:] == order[::-1]


@pytest.mark.parametrize("kinds", [("LSTM", "LSTM"), ("RNN", "LSTM"), ("LSTM", "RNN", "LSTM")])
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_gradients_have_the_bits_of_layers_with_whole_blobs_between_them(kinds, device):
    made = net(kinds)
    whole = [f"l{number}" for number in range(len(kinds) - 1)]
    assert "l0" in blobs(train_graph(made, get_device(device), outputs=["loss", *whole]))
    apart, together = gradients(made, device), gradients(made, device, keep=whole)
    assert_same_bits(apart, together)


def test_two_readers_in_blocks_have_the_bits_of_the_whole_too():
    second = """
        layer { name: "other" type: "LSTM" bottom: "l0" bottom: "cont" top: "other"
            recurrent_param { num_output: 3 weight_filler { type: "uniform" min: -0.7 max: 0.7 } } }
        layer { name: "both" type: "Eltwise" bottom: "l1" bottom: "other" top: "both" }"""
    made = net(more=second, reads="both")
    assert "l0" not in blobs(train_graph(made, get_device("cpu")))
    assert_same_bits(gradients(made), gradients(made, keep=["l0"]))


def test_a_blob_with_another_reader_stays_whole():
    made = net(more='layer { name: "both" type: "Eltwise" bottom: "l0" bottom: "l1" top: "both" }', reads="both")
    assert "l0" in blobs(train_graph(made, get_device("cpu")))


@pytest.mark.parametrize("strategy", ["recompute", "sublinear", "nested", "auto"])
def test_no_strategy_changes_a_bit(strategy):
    assert_same_bits(gradients(net(), strategy=strategy), gradients(net(), strategy="caffe"))


def test_blocks_depend_on_shapes_alone(monkeypatch):
    monkeypatch.setattr(recurrent, "BLOCK_ROWS", STEPS * ITEMS)
    assert "l1/x_slice" not in {node.layer.name for node in net().nodes}
    found = {name: owned.param.shape for name, owned in net().params.items()}
    monkeypatch.setattr(recurrent, "BLOCK_ROWS", 1)
    assert found == {name: owned.param.shape for name, owned in net().params.items()}


def test_slices_of_the_batch_refuse_layers_whose_blocks_a_slice_lacks():
    device = get_device("cpu")
    with pytest.raises(InputError, match=r"mixes the items of a batch, and cannot be sliced"):
        sliced_graph(net(), lambda each: train_graph(each, device), Cut("", "", STEPS), device, CHOICES)
