"""Nodes of a training graph: one for each layer, wired as the net wires it."""

from layermem.graph.net import Net
from layermem.graph.nodes import op_nodes
from layermem.proto.read import read_net_text
from tests.nets import NETS


def test_every_layer_is_a_node_over_versioned_blobs_in_the_order_of_the_net():
    """The ReLU of conv1 is in place: it writes a second version, which the pooling reads."""
    nodes = op_nodes(Net(read_net_text(NETS["chain"]), 0))
    assert [node.emitter.name for node in nodes][:4] == ["data", "conv1", "conv1_relu", "pool1"]
    assert all(node.layers == (node.emitter,) for node in nodes)
    conv, relu, pool = nodes[1:4]
    assert (conv.bottoms, conv.tops, conv.params) == (("data",), relu.bottoms, ("conv1.w0", "conv1.w1"))
    assert relu.tops == pool.bottoms != relu.bottoms


def test_a_node_has_what_its_layer_says_of_gradients_and_of_its_loss():
    text = NETS["chain"].replace('bottom: "pool1" top: "conv2"', 'bottom: "pool1" top: "conv2" propagate_down: false')
    nodes = {node.emitter.name: node for node in op_nodes(Net(read_net_text(text), 0))}
    assert nodes["score"].propagate == (True,) and nodes["conv2"].propagate == (False,)
    assert {name: node.loss_weights for name, node in nodes.items() if any(node.loss_weights)} == {"loss": (1.0,)}
