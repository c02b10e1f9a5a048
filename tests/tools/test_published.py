"""tools/published.py: predictions compared with published steps, and the page that states them."""

from __future__ import annotations

import pytest

from layermem.planning.costs import MODELS, Costs
from layermem.planning.gpus import gpus
from tests.emulator.build import ROOT
from tools import published

PAGE = (ROOT / "docs/benchmarks/published.md").read_text(encoding="utf-8")


def rows_of_page() -> list[list[str]]:
    lines = PAGE[PAGE.index(f"| {' | '.join(published.COLUMNS)} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_has_every_published_step_and_where_it_is_from():
    rows, known = published.rows(), rows_of_page()
    assert len(rows) == len(known)
    for row, (name, net, way, layout, source, milliseconds, *_) in zip(rows, known):
        stated = (row.gpu, f"{row.net} x{row.step_batch}", row.way, row.layout, row.source, f"{1e3 * row.seconds:.1f}")
        assert stated == (name, net, way, layout, source, milliseconds)
        assert name in gpus() and f"| {source} | [" in PAGE


@pytest.mark.samples(2)
@pytest.mark.parametrize("net, way", [("vgg16", "amp"), ("resnet50", "tf32")])
def test_the_page_states_what_the_model_predicts(net, way):
    for row, known in zip(published.rows(), rows_of_page()):
        if (row.net, row.way) == (net, way):
            assert published.cells(row) == known, "run python tools/published.py"


def test_a_prediction_is_within_a_third_of_the_published_time():
    """docs/gpus.md states this."""
    ratios = [float(row[published.COLUMNS.index("ratio")]) for row in rows_of_page()]
    assert all(2 / 3 < ratio < 4 / 3 for ratio in ratios)
    within = sum(0.75 <= ratio <= 1.25 for ratio in ratios)
    assert f"{within} of {len(ratios)} predictions are within a quarter" in " ".join(
        (ROOT / "docs/gpus.md").read_text(encoding="utf-8").split()
    )


def test_layer_by_layer_a_batch_norm_reads_its_input_twice():
    graph = published.graph_of("resnet20", 4, "fp32", fused=False)
    rates = MODELS["cuda"]
    again = sum(published.second_read_bytes(graph, op) for op in graph.ops)
    norms = [op for op in graph.ops if op.kernel == "BatchNormScale.forward"]
    backward = [op for op in graph.ops if op.kernel == "BatchNormScale.backward"]
    inputs = sum(graph.buffers[op.roles["x0"]].nbytes for op in norms)
    assert len(norms) == len(backward) == 21 and again == 3 * inputs
    more = published.layer_by_layer_seconds(graph, Costs(rates)) - sum(map(Costs(rates).op, graph.ops))
    assert more == pytest.approx(again / rates.memory, rel=0.02)  # memory bounds them all


def test_layers_that_pytorch_runs_apart_are_apart():
    kernels = {op.kernel for op in published.graph_of("resnet20", 4, "fp32", fused=False).ops}
    assert {"Pointwise.forward", "Eltwise.forward"} <= kernels
    assert "Pointwise.forward" not in {op.kernel for op in published.graph_of("resnet20", 4, "fp32", fused=True).ops}
