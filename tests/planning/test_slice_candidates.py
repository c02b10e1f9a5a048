"""Which slices of a step are worth a look under a budget."""

import pytest

from layermem import api
from layermem.planning.bounds import least_bytes
from layermem.planning.hints import Hints
from layermem.planning.slice_candidates import counts_of, cuts, in_use_bytes, ranges, row_bands
from layermem.utils.units import aligned

NET = "prototxt/digits/train_val.prototxt"


@pytest.fixture(scope="module")
def job():
    return api.job_of(NET, device="reference", hints=Hints(host_budget_bytes=0))


def test_candidates_are_ranges_from_the_input_and_the_whole_step(job):
    found = [[str(cut) for cut in of_range] for of_range in cuts(job.graphs[0], 12, 10**9)]
    assert counts_of(12) == [2, 4]
    assert found[0] == ["conv1..pool1/2", "conv1..pool1/4"] and found[-1] == ["whole/2", "whole/4"]
    behind_pool1 = [f"{cut}" for of_range in cuts(job.graphs[0], 12, 200 * 1024) for cut in of_range]
    assert "conv1..pool1/2" not in behind_pool1  # conv2 does not fit


def test_an_op_is_in_use_with_all_that_it_touches_less_what_lies_on_other_bytes(job):
    graph = job.whole
    convolution, relu = graph.by_name["conv1.forward"], graph.by_name["relu1.forward"]
    assert not convolution.overlays
    touched = sum(aligned(graph.buffers[b].nbytes) for b in convolution.touches)
    assert in_use_bytes(graph, convolution) == touched + aligned(convolution.workspace_bytes)
    own = sum(aligned(graph.buffers[b].nbytes) for b in relu.touches) + aligned(relu.workspace_bytes)
    assert relu.overlays and in_use_bytes(graph, relu) < own
    assert max(in_use_bytes(graph, op) for op in graph.ops) <= least_bytes(graph)


def test_weights_whose_update_needs_much_of_the_budget_are_worth_bands(job):
    needed = in_use_bytes(job.whole, job.whole.by_name["ip1.w0.update"])
    found = [[str(bands) for bands in row_bands(job.whole, budget)] for budget in (4 * needed, 2 * needed, needed)]
    assert found == [[], ["ip1/rows/2"], ["ip1/rows/4"]]
    assert {bands.layer: bands.count for bands in row_bands(job.whole, 1)} == {"ip1": 16, "ip2": 16}


def graph_of(net: str, batch: int):
    return api.job_of(f"prototxt/{net}/train_val.prototxt", device="cpu", batch=batch).whole


def test_ranges_with_few_batch_norms_begin_where_a_small_blob_crosses_too():
    graph = graph_of("mobilenet1", 4)
    budget_bytes = least_bytes(graph) * 9 // 10
    assert ranges(graph, budget_bytes)[:2] == [("conv2/sep", "conv3/dw"), ("conv1", "conv3/dw")]


def test_a_net_whose_large_layers_have_many_batch_norms_has_no_ranges():
    graph = graph_of("resnet50", 4)
    assert ranges(graph, least_bytes(graph) * 9 // 10) == []
