"""What forward must leave behind."""

from layermem.backends.reference import ReferenceDevice
from layermem.graph.net import Net
from layermem.graph.train import train_graph
from layermem.proto.read import read_net_text


def test_a_layer_without_a_gradient_still_stashes_what_its_recompute_reads():
    net = Net(
        read_net_text("""
            layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
            layer { name: "bn" type: "BatchNorm" bottom: "x" top: "b" }
            layer { name: "ip" type: "InnerProduct" bottom: "b" top: "y" loss_weight: 1
                    inner_product_param { num_output: 2 } }
        """),
        phase=0,
    )
    graph = train_graph(net, ReferenceDevice())
    forward = graph.by_name["bn.forward"]
    assert not any(op.name == "bn.backward" for op in graph.ops)
    assert forward.recompute.kernel == "BatchNorm.recompute"
    assert forward.recompute.reads == ("x", "bn.mean", "bn.inv_std")
    assert set(forward.recompute.reads) - {"x"} <= set(forward.writes)
