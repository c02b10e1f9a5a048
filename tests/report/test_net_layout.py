"""Positions of the boxes and wires of a net."""

from itertools import combinations

import pytest

pytest.importorskip("igraph")

from layermem.api import plan
from layermem.graph import net as graph_net
from layermem.proto.read import read_net_text
from layermem.report.net_layout import arrange, clip, text_width
from layermem.report.net_picture import net_picture
from tests.nets import NETS


@pytest.mark.parametrize("down", [True, False], ids=["TB", "LR"])
@pytest.mark.parametrize("name", ["chain", "residual", "inception"])
def test_boxes_do_not_overlap_and_wires_join_them(name, down):
    layout = arrange(net_picture(plan(graph_net.Net(read_net_text(NETS[name]), 0))), down=down)
    for a, b in combinations(layout.boxes, 2):
        apart = a.x + a.width < b.x or b.x + b.width < a.x or a.y + a.height < b.y or b.y + b.height < a.y
        assert apart, (a.box.layers[0].left, b.box.layers[0].left)
    for route in layout.routes:
        source, target = layout.boxes[route.wire.source], layout.boxes[route.wire.target]
        (x0, y0), (x1, y1) = route.points[0], route.points[-1]
        if down:
            assert y0 == source.y + source.height and y1 == target.y and target.x < x1 < target.x + target.width
        else:
            assert x0 == source.x + source.width and x1 == target.x and target.y < y1 < target.y + target.height
    assert all(
        p.x > 0 and p.y > 0 and p.x + p.width < layout.width and p.y + p.height < layout.height for p in layout.boxes
    )


def test_text_is_clipped_to_a_width():
    assert clip("conv1", 100) == "conv1"
    assert clip("a_very_long_name", 50).endswith("…") and text_width(clip("a_very_long_name", 50)) <= 57
    assert clip("x", 0) == "…"
