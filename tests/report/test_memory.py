"""The arena in predicted time, and what is drawn and traced of it."""

import json
from dataclasses import replace
from itertools import combinations

import pytest

from layermem.api import job_of_net
from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.proto.read import read_net_text
from layermem.report.memory import live_bytes, spans
from layermem.report.plan_report import PlanReport, evaluate
from layermem.report.timeline import EDGED, arena_picture, draw_arena, draw_memory, scale_of
from layermem.report.trace import trace_text
from layermem.schedule.ir import STREAMS
from tests.nets import NETS

STRATEGIES = ("caffe", "liveness", "hybrid", "recompute")


@pytest.fixture(params=STRATEGIES)
def found(request) -> PlanReport:
    net = Net(read_net_text(NETS["residual"]), 0)
    return evaluate(job_of_net(net, get_device("reference"), model_costs("reference")), request.param)


def test_no_byte_belongs_to_two_residencies_at_one_time(found):
    for a, b in combinations(spans(found.program.train, found.timeline), 2):
        apart_in_time = a.end <= b.begin or b.end <= a.begin
        low, high = sorted((a.residency, b.residency), key=lambda r: r.offset)
        assert apart_in_time or low.offset + low.nbytes <= high.offset, (a, b)


def test_live_bytes_stay_below_the_peak_and_end_with_none(found):
    seconds, counts = live_bytes(spans(found.program.train, found.timeline))
    assert seconds == sorted(seconds) and seconds[-1] == pytest.approx(found.seconds)
    assert 0 < max(counts) <= found.peak_bytes and counts[-1] == 0 and min(counts) >= 0


def test_without_copies_the_largest_live_bytes_are_those_of_the_program():
    net = Net(read_net_text(NETS["inception"]), 0)
    found = evaluate(job_of_net(net, get_device("reference"), model_costs("reference")), "liveness")
    assert max(live_bytes(spans(found.program.train, found.timeline))[1]) == found.program.max_live_bytes


def test_a_trace_has_every_row_on_its_stream_and_an_arrow_for_every_wait(found):
    events = json.loads(trace_text(found))["traceEvents"]
    rows = [e for e in events if e["ph"] == "X"]
    schedule = found.program.train
    assert [STREAMS[e["tid"] - 1] for e in rows] == [instruction.stream for instruction in schedule.instructions]
    assert [e["cat"] for e in rows] == [instruction.kind for instruction in schedule.instructions]
    waits = sum(len(instruction.after) for instruction in schedule.instructions)
    assert [sum(e["ph"] == kind for e in events) for kind in "sf"] == [waits, waits]
    for start, finish in zip((e for e in events if e["ph"] == "s"), (e for e in events if e["ph"] == "f")):
        assert start["id"] == finish["id"] and start["ts"] <= finish["ts"] and start["tid"] != finish["tid"]


def test_rows_of_one_stream_do_not_overlap_in_a_trace(found):
    free = dict.fromkeys(range(1, 4), 0.0)
    for event in json.loads(trace_text(found))["traceEvents"]:
        if event["ph"] == "X":
            assert event["ts"] >= free[event["tid"]] - 1e-6
            free[event["tid"]] = event["ts"] + event["dur"]


def test_a_picture_of_the_arena_has_a_box_for_every_span(found):
    picture = arena_picture(found)
    assert len(picture.boxes) == len(spans(found.program.train, found.timeline))
    assert max(b.offset + b.nbytes for b in picture.boxes) <= picture.peak_bytes == found.program.train.peak_bytes
    assert 0 < picture.turn < picture.seconds


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("html", b"<!doctype html>")])
def test_pictures_are_written(found, tmp_path, ending, begins):
    pytest.importorskip({"png": "matplotlib", "html": "plotly"}[ending])
    arena, memory = tmp_path / f"arena.{ending}", tmp_path / f"memory.{ending}"
    draw_arena(found, str(arena))
    draw_memory([found], {found.strategy: [(10**6, 0.1), (10**5, 0.3)]}, [(10**5, 0.0)], str(memory), title="it")
    for path in (arena, memory):
        assert path.read_bytes().lower().startswith(begins.lower()) and path.stat().st_size > 10_000
    if ending == "html":
        assert b"conv" in arena.read_bytes()  # names for the pointer


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

    picture = replace(arena_picture(found), budget=found.peak_bytes)
    notes = {note.text.split()[0]: note for note in arena_figure(picture).layout.annotations}
    assert notes["budget"].y == notes["peak"].y
    assert (notes["budget"].yanchor, notes["peak"].yanchor) == ("bottom", "top")


def test_a_picture_has_an_ending_that_says_how_to_draw_it(found, tmp_path):
    with pytest.raises(InputError, match=r"has an unknown format; use a name that ends in \.html or \.png"):
        draw_arena(found, str(tmp_path / "arena.jpeg"))


@pytest.mark.parametrize(
    ("most", "seconds", "unit"),
    [(4e-4, True, "µs"), (0.4, True, "ms"), (40, True, "s"), (900, False, "KiB"), (2**21, False, "MiB"),
     (2.0**31, False, "GiB"), (2.0**51, False, "TiB")],
)  # fmt: skip
def test_axes_take_the_unit_that_reads_well(most, seconds, unit):
    assert scale_of(most, seconds=seconds)[1] == unit
