"""Deploy forms of nets."""

import pytest
from google.protobuf import text_format

from layermem.data import probe
from layermem.errors import InputError
from layermem.graph.deploy import deploy_net
from layermem.graph.net import Net, NetOptions
from layermem.proto.read import read_net, read_net_text
from layermem.proto.schema import TEST
from tests.nets import DATA, LOSS, NETS, conv, relu


def deployed(text: str, **options) -> Net:
    """The deploy form of a net, read back from its text."""
    message = deploy_net(Net(read_net_text(text), TEST, NetOptions(**options)))
    return Net(read_net_text(text_format.MessageToString(message)), TEST)


def names(net: Net) -> list[str]:
    return [layer.name for layer in net.layers]


def test_data_layers_become_inputs_and_the_loss_probabilities():
    net = deployed(NETS["chain"])
    assert names(net) == ["data", "conv1", "conv1_relu", "pool1", "conv2", "conv2_relu", "score", "prob"]
    assert [layer.type for layer in net.layers[:: len(net.layers) - 1]] == ["Input", "Softmax"]
    assert list(net.layers[0].message.top) == ["data"] and net.blobs["data"].shape == (4, 3, 6, 5)
    assert net.outputs == ("prob",) and net.blobs["prob"].shape == (4, 5)


def test_rules_and_rates_are_left_out_and_shared_parameters_stay():
    net = deployed(NETS["chain"])
    assert not any(layer.message.param or layer.message.include for layer in net.layers)
    net = deployed(NETS["shared"])
    assert [name for name in net.params if name.endswith(".shared")]


def test_the_batch_is_that_of_the_net():
    assert deployed(NETS["chain"], batch=7).blobs["prob"].shape == (7, 5)


@pytest.mark.parametrize(
    ("kind", "outputs"),
    [
        ("SigmoidCrossEntropyLoss", ("prob",)),
        ("EuclideanLoss", ("score",)),
        ("HingeLoss", ("score",)),
        ("MultinomialLogisticLoss", ("score",)),
    ],
)
def test_other_losses_leave_what_they_compare_with_the_truth(kind, outputs):
    label = 'layer { name: "t" type: "Input" top: "t" input_param { shape { dim: 4 dim: 5 } } }'
    truth = "t" if kind[0] in "SE" else "label"
    text = NETS["chain"].replace(
        'type: "SoftmaxWithLoss" bottom: "score" bottom: "label"', f'type: "{kind}" bottom: "score" bottom: "{truth}"'
    )
    net = deployed(label + text)
    assert net.outputs == outputs and "t" not in net.blobs
    if outputs == ("prob",):
        assert net.layers[-1].type == "Sigmoid"


def test_auxiliary_classifiers_are_left_out():
    aux = f"""
        {conv("aux", "data", 4, 3)}
        layer {{ name: "aux_score" type: "InnerProduct" bottom: "aux" top: "aux_score"
                inner_product_param {{ num_output: 5 }} }}
        layer {{ name: "aux_loss" type: "SoftmaxWithLoss" bottom: "aux_score" bottom: "label" loss_weight: %s }}
    """
    text = f"{DATA} {aux} {conv('conv1', 'data', 4, 3)} {relu('conv1')} {LOSS % 'conv1'}"
    net = deployed(text % "0.3")
    assert net.outputs == ("prob",) and "aux" not in net.blobs
    assert deployed(text % "1").outputs == ("aux_loss_prob", "prob")


def test_an_axis_of_the_loss_is_that_of_the_softmax_and_a_blob_of_that_name_stays():
    text = (
        NETS["chain"]
        .replace("conv1", "prob")
        .replace('type: "SoftmaxWithLoss"', 'type: "SoftmaxWithLoss" softmax_param { axis: 1 }')
    )
    net = deployed(text)
    assert net.outputs == ("loss_prob",) and net.layers[-1].message.softmax_param.axis == 1


def test_what_works_on_labels_alone_is_left_out():
    text = NETS["chain"].replace(
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label"',
        """layer { name: "flat" type: "Reshape" bottom: "label" top: "flat" reshape_param { shape { dim: 4 } } }
           layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "flat\"""",
    )
    assert "flat" not in names(deployed(text))


def test_a_deploy_net_stays_what_it_is():
    net = deployed(NETS["chain"])
    again = deploy_net(net)
    assert [layer.name for layer in again.layer] == names(net)


@pytest.mark.parametrize(
    ("folder", "inputs", "outputs"),
    [
        ("digits", {"data": (60, 1, 8, 8)}, ("prob",)),
        ("googlenet", {"data": (50, 3, 224, 224)}, ("prob",)),
        ("siamese", {"pair_data": (100, 2, 28, 28)}, ("feat", "feat_p")),
        ("unet", {"data": (1, 1, 572, 572)}, ("prob",)),
        ("lstm_lm", {"word": (35, 20), "cont": (35, 20)}, ("prob",)),
        ("ssd300", {"data": (8, 3, 300, 300)}, ("detection_out",)),
    ],
)
def test_nets_of_this_repository(folder, inputs, outputs):
    message = deploy_net(Net(read_net(f"prototxt/{folder}/train_val.prototxt"), TEST, probe=probe))
    net = Net(read_net_text(text_format.MessageToString(message)), TEST)
    tops = [top for layer in net.layers if layer.type == "Input" for top in layer.message.top]
    assert {top: net.blobs[top].shape for top in tops} == inputs and net.outputs == outputs


def test_a_net_without_a_score_is_refused():
    text = f'{DATA} layer {{ name: "a" type: "Silence" bottom: "data" bottom: "label" }}'
    with pytest.raises(InputError, match="has no layer from which an output can be computed; give a net with"):
        deployed(text)
