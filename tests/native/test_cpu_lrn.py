"""LRN of the cpu device against windows summed in float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch, query
from tests.cases.normalization import LRN_WINDOWS
from tests.native.numbers import at, close, normal


def window_sum(values, size, across):
    """Sums over `size` channels, or size x size pixels, around each element of [n, h, w, c]."""
    half, total = size // 2, np.zeros_like(values)
    if across:
        padded = np.pad(values, ((0, 0), (0, 0), (0, 0), (half, half)))
        return sum(padded[..., i : i + values.shape[3]] for i in range(size))
    padded = np.pad(values, ((0, 0), (half, half), (half, half), (0, 0)))
    for i in range(size):
        for j in range(size):
            total += padded[:, i : i + values.shape[1], j : j + values.shape[2]]
    return total


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("beta", [0.75, 0.6, 0.5])
@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("shape, size", LRN_WINDOWS)
def test_lrn_divides_by_a_power_of_the_squares_around(shape, size, across, beta, isa, every_way):
    n, h, w, c = shape
    x, dy, before = normal(1, *shape), normal(2, *shape), normal(3, *shape)
    how = {"n": n, "h": h, "w": w, "c": c, "size": size, "across": across}
    numbers = {"alpha": 0.1, "k": 1.5, "beta": beta}

    def make(memory):
        X, DY, y = memory.put(x), memory.put(dy), memory.empty(*shape)
        dx, over, added = memory.empty(*shape), memory.put(x), memory.put(before)
        forward = memory.workspace(query("lrn_workspace_bytes", **how, backward=False))
        back = memory.workspace(query("lrn_workspace_bytes", **how, backward=True))
        launch("lrn_forward", **how, **numbers, out=at(y), x=at(X), workspace=forward)()
        launch("lrn_backward", **how, **numbers, out=at(dx), x=at(X), dy=at(DY), workspace=back)()
        launch("lrn_backward", **how, **numbers, out=at(added), x=at(X), dy=at(DY), accumulate=True, workspace=back)()
        if across:
            launch("lrn_backward", **how, **numbers, out=at(over), x=at(over), dy=at(DY), workspace=back)()
            launch("lrn_forward", **how, **numbers, out=at(X), x=at(X), workspace=forward)()
        return y, dx, added, (X if across else y), (over if across else dx)

    y, dx, added, own, over = every_way(make)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    s = 1.5 + 0.1 * window_sum(x * x, size, across)
    close(y, x * s**-beta)
    want = dy * s**-beta - 2 * 0.1 * beta * x * window_sum(dy * x * s ** (-beta - 1), size, across)
    close(dx, want)
    assert (own == y).all() and (over == dx).all() and (added == before + dx).all()
