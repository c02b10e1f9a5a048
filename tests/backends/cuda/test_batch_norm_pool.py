"""A BatchNorm with the MAX pooling behind it: the bits of the two ops one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.ops import NARROW
from tests.backends.cuda.batch_norm_pool import CASES, Steps
from tests.backends.cuda.harness import PLAIN, Way
from tests.emulator.emulate import WAYS

STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]


def check(steps: Steps, adds: tuple[str, ...] = ()) -> None:
    together, apart = (steps.results(pooled=pooled, adds=adds) for pooled in (True, False))
    assert np.isfinite(together["dw3"]).all() and (together["dw3"] != 0).any()
    for role, value in apart.items():
        np.testing.assert_array_equal(together[role].view(np.uint8), value.view(np.uint8), err_msg=role)


@pytest.mark.parametrize("word", ["", *NARROW])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_pooling_in_the_launches_of_its_batch_norm_changes_no_bit(name, relu, word, rng):
    check(Steps(name, PLAIN, word, rng, relu=relu))


@pytest.mark.parametrize("word", ["", *NARROW])
def test_its_gradient_is_added_to_another(word, rng):
    check(Steps("overlapping", PLAIN, word, rng), adds=("dx0", "dw3", "dw4"))


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", ["overlapping", "padded, hanging over"])
def test_it_stays_in_bounds_and_has_no_races(name, way, rng):
    check(Steps(name, way, "", rng))
