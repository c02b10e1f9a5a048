"""The content of plots, and their files."""

import pytest

from layermem.api import job_of_net
from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.proto.read import read_net_text
from layermem.report.memory import spans
from layermem.report.plan_report import PlanReport, evaluate
from layermem.report.timeline import arena_picture, draw_arena, draw_memory, scale_of
from tests.nets import NETS

STRATEGIES = ("caffe", "liveness", "hybrid", "recompute")


@pytest.fixture(params=STRATEGIES)
def found(request) -> PlanReport:
    net = Net(read_net_text(NETS["residual"]), 0)
    return evaluate(job_of_net(net, get_device("reference"), model_costs("reference")), request.param)


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
