"""Embed and BatchReindex: rows by hand, sums of gradients, memory, refusals."""

import numpy as np
import pytest

from layermem.backends.cpu.gather import wgrad_workspace_bytes
from layermem.errors import InputError
from tests.layers.harness import backward, forward, layer_of, nbytes


def embed(settings, *shapes):
    return layer_of(f'type: "Embed" embed_param {{ {settings} }}', *shapes)


def reindex(*shapes):
    return layer_of('type: "BatchReindex"', *shapes)


TABLE = np.array([[1.0, 2], [3, 4], [5, 6]])


def test_an_embedding_is_a_row_of_the_weights_for_each_number_plus_the_bias():
    it = embed("input_dim: 3 num_output: 2", (2, 2))
    run = forward(it, np.array([[2.0, 0], [2, 1]]), ws=[TABLE, np.array([10.0, 20])])
    assert it.tops[0].shape == (2, 2, 2)
    np.testing.assert_array_equal(run.arrays["y0"], [[[15, 26], [11, 22]], [[15, 26], [13, 24]]])


def test_an_embedding_without_bias_has_one_parameter_of_input_dim_rows():
    it = embed("input_dim: 3 num_output: 2 bias_term: false", (4,))
    assert [p.shape for p in it.params] == [(3, 2)]
    run = forward(it, np.array([0.0, 1.9, 2, 1]), ws=[TABLE])  # the integer part, as in Caffe
    np.testing.assert_array_equal(run.arrays["y0"], TABLE[[0, 1, 2, 1]])


def test_a_row_of_the_weights_gets_the_sum_of_the_gradients_of_its_uses():
    it = embed("input_dim: 3 num_output: 2", (3,))
    run = forward(it, np.array([2.0, 0, 2]), ws=[TABLE, np.zeros(2)])
    backward(run, ("dw0", "dw1"), np.array([[1.0, 2], [10, 20], [100, 200]]))
    np.testing.assert_array_equal(run.arrays["dw0"], [[10, 20], [0, 0], [101, 202]])
    np.testing.assert_array_equal(run.arrays["dw1"], [111, 222])


def test_backward_of_an_embedding_reads_neither_weights_nor_what_it_does_not_need():
    it = embed("input_dim: 3 num_output: 2", (4,))
    assert [step.reads for step in it.backward(("dw0", "dw1"))] == [("x0", "dy0")]
    assert [step.reads for step in it.backward(("dw1",))] == [("dy0",)]
    assert it.backward(("dx0",)) == () and nbytes(it) == 0


def test_an_embedding_without_bias_plans_no_bytes_for_the_gradient_of_one():
    it = embed("input_dim: 50 num_output: 1000", (400,))
    assert wgrad_workspace_bytes(it.record, ("x0", "dy0", "dw0")) == 0
    assert wgrad_workspace_bytes(it.record, ("x0", "dy0", "dw0", "dw1")) > 0


@pytest.mark.parametrize("bad, shown", [(3.0, "3"), (-1.0, "-1"), (float("nan"), "nan"), (1e30, "1e[+]30")])
def test_an_index_without_a_row_stops_the_run(bad, shown):
    it = embed("input_dim: 3 num_output: 2", (2,))
    with pytest.raises(InputError, match=f"layer 'it' reads index {shown}, but it has 3 rows: 0 to 2; fix the data"):
        forward(it, np.array([0.0, bad]), ws=[TABLE, np.zeros(2)])


def test_items_are_chosen_in_any_order_and_number():
    x = np.arange(24.0).reshape(2, 3, 2, 2)
    it = reindex(x.shape, (3,))
    run = forward(it, x, np.array([1.0, 1, 0]))
    np.testing.assert_array_equal(run.arrays["y0"], x[[1, 1, 0]])
    dy = np.arange(36.0).reshape(3, 3, 2, 2)
    backward(run, ("dx0",), dy)
    np.testing.assert_array_equal(run.arrays["dx0"], [dy[2], dy[0] + dy[1]])


def test_an_item_that_was_not_chosen_has_no_gradient():
    run = forward(reindex((3, 2), (1,)), np.ones((3, 2)), np.array([1.0]))
    backward(run, ("dx0",), np.full((1, 2), 7.0))
    np.testing.assert_array_equal(run.arrays["dx0"], [[0, 0], [7, 7], [0, 0]])


def test_backward_of_a_reindexing_reads_the_indices_and_dy_alone():
    it = reindex((3, 2), (5,))
    assert [(s.reads, s.writes) for s in it.backward(("dx0", "dx1"))] == [(("x1", "dy0"), ("dx0",))]
    assert it.backward(("dx1",)) == ()


def test_an_index_beyond_the_batch_stops_the_run():
    with pytest.raises(InputError, match="reads index 2, but it has 2 rows: 0 to 1"):
        forward(reindex((2, 3), (1,)), np.zeros((2, 3)), np.array([2.0]))


@pytest.mark.parametrize("settings", ["num_output: 2", "input_dim: 3", ""])
def test_an_embedding_states_both_of_its_sizes(settings):
    with pytest.raises(InputError, match="has no num_output or no input_dim; set both in embed_param to at least 1"):
        embed(settings, (2,))


@pytest.mark.parametrize("shapes, remedy", [([(2, 3), (2, 1)], "in one axis"), ([(), (2,)], "without axes")])
def test_an_impossible_batch_reindex_is_refused_with_a_remedy(shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        reindex(*shapes)
