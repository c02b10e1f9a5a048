"""Dropout: the elements that a mask keeps, and the backward pass."""

from zlib import crc32

import numpy as np
import pytest

from layermem.backends.reference.base import stored
from layermem.backends.reference.support.philox import words
from layermem.errors import InputError
from tests.cases.base import ROWS_AND_IMAGES
from tests.layers.harness import TEST, Run, backward, check_gradients, forward, layer_of


def dropout(shape, settings="", name="drop6", **kwargs):
    return layer_of(f'name: "{name}" type: "Dropout" dropout_param {{ {settings} }}', shape, **kwargs)


def test_elements_fall_by_their_place_in_memory_and_the_others_are_scaled():
    shape = (2, 3, 4, 5)
    layer = dropout(shape, "dropout_ratio: 0.25")
    run = forward(layer, np.ones(shape))
    falls = words(120, 1701, crc32(b"drop6"), 3) < 2**30
    np.testing.assert_array_equal(stored(run.arrays["y0"]).reshape(-1), np.where(falls, 0, 1 / 0.75))


@pytest.mark.parametrize("ratio", [0, 0.3, 0.5, 0.9])
def test_the_share_of_dropped_elements_is_the_ratio(ratio):
    count = 20000
    run = forward(dropout((count,), f"dropout_ratio: {ratio}"), np.ones(count))
    share = (run.arrays["y0"] == 0).mean()
    assert abs(share - ratio) <= 4 * np.sqrt(ratio * (1 - ratio) / count)  # four standard deviations
    assert abs(run.arrays["y0"].mean() - 1) < 0.1


@pytest.mark.parametrize("shape", ROWS_AND_IMAGES)
def test_gradients(shape):
    check_gradients(dropout(shape), np.random.default_rng(2).standard_normal(shape))


def test_nothing_is_stashed_and_backward_reads_nothing_but_dy():
    layer = dropout((2, 3))
    assert layer.stash == {} and layer.recompute_kind == "seeded"
    assert [step.reads for step in layer.backward(["dx0"])] == [("dy0",)]


def dropped(name="drop6", seed=1, step=2):
    layer = dropout((400,), name=name)
    run = Run(layer, context={"seed": seed, "step": step})
    run.put("x0", np.ones(400))
    run.step(layer.forward())
    return run.arrays["y0"]


def test_a_recomputation_in_the_same_step_draws_the_same_elements():
    np.testing.assert_array_equal(dropped(), dropped())


@pytest.mark.parametrize("other", [{"name": "drop7"}, {"seed": 2}, {"step": 3}, {"step": 2 + 2**32}])
def test_another_layer_seed_or_step_draws_others(other):
    agree = ((dropped() == 0) == (dropped(**other) == 0)).mean()
    assert 0.4 < agree < 0.6


def test_in_test_phase_it_is_the_identity():
    x = np.random.default_rng(2).standard_normal((2, 3, 2, 2))
    layer = dropout(x.shape, "dropout_ratio: 0.9", phase=TEST)
    run = backward(forward(layer, x), ["dx0"], 2 * x)
    np.testing.assert_array_equal(run.arrays["y0"], x)
    np.testing.assert_array_equal(run.arrays["dx0"], 2 * x)


@pytest.mark.parametrize("ratio", [-0.1, 1, 1.5])
def test_a_ratio_that_leaves_nothing_or_is_no_share_is_refused(ratio):
    with pytest.raises(InputError, match="from 0 up to"):
        dropout((2,), f"dropout_ratio: {ratio}")


def test_a_ratio_of_1_drops_nothing_in_test_and_is_refused_in_train():
    x = np.arange(4.0)
    assert np.array_equal(forward(dropout(x.shape, "dropout_ratio: 1", phase=TEST), x).arrays["y0"], x)
    with pytest.raises(InputError, match="has dropout_ratio 1; use a number from 0"):
        dropout(x.shape, "dropout_ratio: 1")
