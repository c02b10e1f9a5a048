"""MVN of the cpu device against means and deviations in float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from tests.cases.normalization import CENTERED
from tests.native.numbers import at, close, normal


def mean(a):
    return a.mean(axis=1, dtype=np.float64, keepdims=True)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("shape", CENTERED)
def test_means_and_deviations_are_removed(shape, normalize, isa, every_way):
    outer, _, inner = shape
    x, dy, before, eps = normal(1, *shape) + 5, normal(2, *shape), normal(3, *shape), 0.01
    axis = shape

    def make(memory):
        X, DY, y, over = memory.put(x), memory.put(dy), memory.empty(*shape), memory.put(x)
        inv_std, dx, added = memory.empty(outer, inner), memory.empty(*shape), memory.put(before)
        stash = at(inv_std) if normalize else 0
        launch("mvn_forward", axis=axis, y=at(y), x=at(X), inv_std=stash, normalize=normalize, eps=eps)()
        launch("mvn_forward", axis=axis, y=at(over), x=at(over), normalize=normalize, eps=eps)()
        how = {"dy": at(DY), "y": at(y) if normalize else 0, "inv_std": stash}
        launch("mvn_backward", axis=axis, dx=at(dx), **how)()
        launch("mvn_backward", axis=axis, dx=at(added), accumulate=True, **how)()
        if not normalize:
            inv_std[...] = 1
        return y, over, inv_std, dx, added

    y, over, inv_std, dx, added = every_way(make)
    centered = x - mean(x)
    factor = 1 / (np.sqrt(mean(centered**2)) + eps) if normalize else 1 + 0 * mean(x)
    np.testing.assert_array_equal(over, y)
    np.testing.assert_allclose(inv_std, factor[:, 0], rtol=1e-5)
    if shape[1] == 1:  # nothing is left but rounding
        assert not y.any() and not dx.any()
        return
    close(y, centered * factor, 5e-6)
    product = mean(y * dy) if normalize else 0
    close(dx, (dy - mean(dy) - y * product) * factor, 5e-6)
    close(added, before + (dy - mean(dy) - y * product) * factor, 5e-6)
