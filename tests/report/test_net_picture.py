"""The boxes and wires of a net."""

import pytest

from layermem.api import Net, plan
from layermem.graph import net as graph_net
from layermem.proto.read import read_net_text
from layermem.report.decisions import FREED, FUSED, KEPT, RECOMPUTED
from layermem.report.net_picture import LONG, Wire, net_picture, ranks_of
from tests.nets import NETS


def picture_of(name: str, *, fold: bool = False, **options):
    return net_picture(plan(graph_net.Net(read_net_text(NETS[name]), 0), **options), fold=fold)


@pytest.mark.parametrize("name", NETS)
def test_every_layer_is_in_one_box_and_wires_run_downwards(name):
    report = plan(graph_net.Net(read_net_text(NETS[name]), 0))
    picture = net_picture(report)
    boxes = [box for box in picture.boxes if not box.reference]
    assert [line.left for box in boxes for line in box.layers] == [n.layer.name for n in report.job.nets[0].nodes]
    rank = ranks_of(len(picture.boxes), picture.wires)
    assert all(rank[wire.source] < rank[wire.target] for wire in picture.wires)


def test_a_box_has_the_layers_of_an_op_its_shape_bytes_and_decision():
    (box,) = [box for box in picture_of("chain").boxes if box.layers[0].left == "conv1"]
    assert [(line.left, line.right, line.family) for line in box.layers] == [
        ("conv1", "Convolution 3x3, 4", "convolution"),
        ("conv1_relu", "ReLU", "other"),
    ]
    assert [(line.left, line.right) for line in box.tops] == [("4x4x6x5", "1.88 KiB")]
    assert box.decision == FREED and not box.ends
    assert "conv1': 4x4x6x5, 1.88 KiB, freed" in box.tooltip and "stash conv1+conv1_relu.mask" in box.tooltip


def test_totals_count_blobs_and_fused_layers_whatever_is_folded():
    net = graph_net.Net(read_net_text(NETS["residual"]), 0)
    smallest = plan(net, strategy="recompute").minimum_bytes
    report = plan(net, strategy="recompute", budget=smallest)
    for fold in (False, True):
        totals = net_picture(report, fold=fold).totals
        assert set(totals) <= {KEPT, RECOMPUTED, FREED, FUSED} and totals[RECOMPUTED][0] > 0
        assert totals[FUSED][0] == sum(
            len(op.layers) - 1 for op in report.job.graphs[0].ops if op.kind == "forward" and op.layers
        )


def test_repeated_stages_are_drawn_once():
    report = plan(Net("prototxt/resnet101/train_val.prototxt", inputs={"data": (1, 3, 224, 224)}))
    whole, folded = net_picture(report), net_picture(report, fold=True)
    assert [(stage.period, stage.count) for stage in folded.stages] == [(6, 2), (6, 3), (6, 22)]
    assert len(folded.boxes) == len(whole.boxes) - 6 * (1 + 2 + 21)  # the last block of res5 is not kept
    stage = folded.stages[2]
    assert folded.boxes[stage.first].layers[0].left == "res4b1_branch2a"
    assert stage.tooltip == "22 times: res4b1_branch2a to res4b22_branch2a"
    assert all(wire.source < len(folded.boxes) and wire.target < len(folded.boxes) for wire in folded.wires)


def test_a_long_wire_from_an_input_layer_ends_in_a_box_with_its_name():
    layers = "".join(
        f'layer {{ name: "r{i}" type: "Sigmoid" bottom: "{f"r{i - 1}" if i else "data"}" top: "r{i}" }}\n'
        for i in range(LONG + 2)
    )
    head, _, loss = NETS["chain"].partition('layer { name: "conv1"')
    text = head + layers + loss[loss.index('layer { name: "score"') :].replace("conv2", f"r{LONG + 1}")
    picture = net_picture(plan(graph_net.Net(read_net_text(text), 0)))
    assert [box.layers[0].left for box in picture.boxes if box.reference] == ["label from data"]
    rank = ranks_of(len(picture.boxes), picture.wires)
    assert all(rank[wire.target] - rank[wire.source] <= LONG for wire in picture.wires)


def test_a_box_that_the_first_one_does_not_lead_to_is_right_above_its_reader():
    wires = [Wire(a, b, KEPT, "") for a, b in ((0, 1), (1, 2), (2, 3), (4, 5), (5, 3))]
    assert ranks_of(6, wires) == [0, 1, 2, 3, 1, 2]
