"""Plots as web pages."""

from dataclasses import replace

import pytest

from layermem.api import job_of_net
from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.proto.read import read_net_text
from layermem.report.plan_report import PlanReport, evaluate
from layermem.report.timeline import EDGED, arena_picture
from tests.nets import NETS

STRATEGIES = ("caffe", "liveness", "hybrid", "recompute")


@pytest.fixture(params=STRATEGIES)
def found(request) -> PlanReport:
    net = Net(read_net_text(NETS["residual"]), 0)
    return evaluate(
        job_of_net(net, get_device("reference"), model_costs("reference")).with_host_budget("1TiB"), request.param
    )


def test_boxes_too_thin_for_an_edge_keep_their_colour_on_a_page(found):
    pytest.importorskip("plotly")
    from layermem.report.timeline_html import arena_figure

    picture = arena_picture(found)
    edges = {
        text: edge for bar in arena_figure(picture).data for text, edge in zip(bar.hovertext, bar.marker.line.width)
    }
    thick = {box.description: box.nbytes >= EDGED * picture.peak_bytes for box in picture.boxes}
    assert {text: edge > 0 for text, edge in edges.items()} == thick and len(set(thick.values())) == 2


def test_what_bounds_a_page_is_named_on_both_sides_of_its_line(found):
    pytest.importorskip("plotly")
    from layermem.report.timeline_html import arena_figure

    picture = replace(arena_picture(found), budget_bytes=found.peak_bytes)
    notes = {note.text.split()[0]: note for note in arena_figure(picture).layout.annotations}
    assert notes["budget"].y == notes["peak"].y
    assert (notes["budget"].yanchor, notes["peak"].yanchor) == ("bottom", "top")
