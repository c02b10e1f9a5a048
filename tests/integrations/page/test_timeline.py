"""The content of plots, and their files."""

import re
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.integrations.page.columns import unpack
from layermem.integrations.page.timeline import check_plot, draw_arena, draw_memory
from layermem.proto.read import read_net_text
from layermem.report.comparison import Trade
from layermem.report.memory import spans
from layermem.report.plan_report import PlanReport, evaluate
from layermem.report.timeline_picture import ArenaBox, PlotCurve, arena_picture, merge_boxes, merge_equal, scale_of
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS

STRATEGIES = ("caffe", "liveness", "hybrid", "recompute")


def report_of(strategy: str) -> PlanReport:
    net = Net(read_net_text(NETS["residual"]), 0)
    return evaluate(net_job(net, StepOptions(device="reference")).with_host_budget("1TiB"), strategy)


@pytest.fixture(params=STRATEGIES)
def found(request) -> PlanReport:
    return report_of(request.param)


@pytest.fixture(scope="module")
def recomputed() -> PlanReport:
    return report_of("recompute")


def test_a_picture_of_the_arena_has_a_box_for_every_span(found):
    picture = arena_picture(found)
    assert len(picture.boxes) == len(spans(found.program.train, found.timeline))
    assert max(b.offset + b.nbytes for b in picture.boxes) <= picture.peak_bytes == found.program.train.peak_bytes
    assert 0 < picture.turn < picture.seconds


def test_a_picture_of_a_step_in_slices_has_a_box_for_every_piece(sliced, tmp_path):
    picture = arena_picture(sliced)
    pieces = [r for r in sliced.program.train.residencies if "@" in r.buffer]
    assert len(pieces) == 12 and len(picture.boxes) == len(sliced.program.train.residencies)
    for piece in pieces:
        assert any((box.offset, box.nbytes) == (piece.offset, piece.nbytes) for box in picture.boxes)
    draw_arena(sliced, str(tmp_path / "arena.html"))
    assert (tmp_path / "arena.html").read_bytes().startswith(b"<!doctype html>")


@pytest.mark.samples(4)
@pytest.mark.parametrize(
    ("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF"), ("html", b"<!doctype html>")]
)
def test_pictures_are_written(recomputed, tmp_path, ending, begins):
    if ending != "html":
        pytest.importorskip("matplotlib")
    arena, memory = tmp_path / f"arena.{ending}", tmp_path / f"memory.{ending}"
    draw_arena(recomputed, str(arena))
    draw_memory(
        [recomputed],
        {recomputed.strategy: Trade([(10**5, 0.3), (10**6, 0.1)], {})},
        [(10**5, 0.0)],
        str(memory),
        title="it",
    )
    for path in (arena, memory):
        assert path.read_bytes().lower().startswith(begins.lower()) and path.stat().st_size > 10_000


def test_without_matplotlib_a_picture_is_refused_with_the_name_that_needs_nothing(monkeypatch):
    monkeypatch.setattr("layermem.integrations.page.timeline.find_spec", lambda name: None)
    for ending in ("png", "svg", "pdf"):
        with pytest.raises(InputError, match=r"give a name that ends in \.html, which needs nothing"):
            check_plot(f"a.{ending}")
    check_plot("a.html")


def test_a_picture_has_an_ending_that_says_how_to_draw_it(recomputed, tmp_path):
    with pytest.raises(InputError, match=r"a plot by its name; use a name that ends in \.png, \.svg, \.pdf or \.html"):
        draw_arena(recomputed, str(tmp_path / "arena.jpeg"))


@pytest.mark.parametrize(
    ("most", "seconds", "unit"),
    [
        (4e-4, True, "µs"),
        (0.4, True, "ms"),
        (40, True, "s"),
        (900, False, "KiB"),
        (2**21, False, "MiB"),
        (2.0**31, False, "GiB"),
        (2.0**51, False, "TiB"),
    ],
)
def test_axes_take_the_unit_that_reads_well(most, seconds, unit):
    assert scale_of(most, seconds=seconds)[1] == unit


NAMES = "$x_{$", "<a href='https://example.org'>a</a>", "[/b]"


@pytest.mark.samples(2)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_names_that_are_markup_are_drawn_as_they_are(recomputed, tmp_path, ending):
    image = pytest.importorskip("layermem.report.timeline_image", exc_type=ImportError)
    arena, memory = str(tmp_path / f"arena.{ending}"), str(tmp_path / f"memory.{ending}")
    picture, title = arena_picture(recomputed), " ".join(NAMES)
    boxes = tuple(replace(box, name=name) for box, name in zip(picture.boxes, cycle(NAMES)))
    image.paint_arena(replace(picture, title=title, boxes=boxes), arena)
    draw_memory([recomputed], {}, [(10**5, 0.0)], memory, title=title)
    for path in (arena, memory) if ending == "svg" else ():
        assert "<a href='https" not in Path(path).read_text()


def test_the_page_of_a_comparison_has_its_plans_and_its_curves(recomputed, tmp_path):
    path = tmp_path / "memory.html"
    draw_memory(
        [recomputed],
        {recomputed.strategy: Trade([(10**3, 0.3), (10**6, 0.1)], {10**6: 0.1})},
        [(10**6, 0.0)],
        str(path),
        title="<it>",
    )
    page = unpack(re.search(r'id="data">([^<]*)<', path.read_text())[1])
    assert page["title"] == "<it>" and "<it>" not in path.read_text()
    (times,) = page["strategies"]["least_time"]
    assert (times["bytes"], list(times["seconds"])) == (10**6, ["recompute"])
    (row,), (curve,) = page["strategies"]["rows"], page["strategies"]["curves"]
    assert (row["peak_bytes"], row["least_bytes"], row["fits"]) == (recomputed.peak_bytes, 10**3, True)
    assert curve["bytes"] == [10**3, 10**6]
    assert curve["seconds"] == [pytest.approx(recomputed.job.baseline_seconds * share) for share in (1.3, 1.1)]


def test_what_is_too_small_for_a_box_of_its_own_is_merged_and_covers_the_same_plane(found, monkeypatch):
    whole = arena_picture(found)
    monkeypatch.setattr("layermem.report.timeline_picture.MAX_BOXES", 5)
    picture = arena_picture(found)
    assert picture.boxes[-5:] == whole.boxes[:5]
    small, merged = whole.boxes[5:], picture.boxes[:-5]
    assert f"; {len(small)} small residencies merged" in picture.title and merged
    for box in small:  # each point of it is in a merged box of its kind
        for time in (box.begin, (box.begin + box.end) / 2):
            for address in (box.offset, box.offset + box.nbytes - 1):
                assert any(
                    each.kind == box.kind
                    and each.begin <= time * (1 + 1e-12) <= each.end * (1 + 2e-12)
                    and each.offset <= address < each.offset + each.nbytes
                    for each in merged
                )
    assert max(b.offset + b.nbytes for b in merged) <= picture.peak_bytes


def test_merged_boxes_are_far_fewer():
    small = [ArenaBox(f"b{i}", "data", i / 1e5, (i + 1) / 1e5, 256 * (i % 1000), 256) for i in range(100_000)]
    merged = merge_boxes(small, 1.0, 256_000)
    assert len(merged) <= 400 and sum(box.nbytes * (box.end - box.begin) for box in merged) >= 128_000 * (1 - 1e-9)
    (one,) = merge_boxes([ArenaBox("a", "parameter", 0.0, 1.0, 0, 256)], 1.0, 256_000)
    assert (one.begin, one.end, one.offset, one.nbytes) == (0.0, 1.0, 0, 256)


def test_a_budget_far_above_the_peak_is_named_and_not_drawn(found):
    for factor, drawn in ((1.2, True), (1.3, False)):
        report = replace(found, budget_bytes=int(found.peak_bytes * factor))
        picture = arena_picture(report)
        assert (picture.budget_bytes == report.budget_bytes) == drawn == ("of a budget of" not in picture.title)


def test_equal_curves_are_one_with_both_names():
    curves = [
        PlotCurve("a", (0.0, 1.0), (2.0, 3.0), "red"),
        PlotCurve("b", (0.0,), (2.0,), "blue"),
        PlotCurve("c", (0.0, 1.0), (2.0, 3.0), "green"),
    ]
    assert merge_equal(curves) == (replace(curves[0], name="a = c"), curves[1])
