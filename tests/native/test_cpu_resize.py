"""Interp of the cpu device against bilinear weights in float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from tests.cases.shapes import RESIZED
from tests.native.numbers import at, close, normal


def line(size, out):
    """[out, size]: the bilinear weights of one axis, corners on corners."""
    weights = np.zeros((out, size))
    for i in range(out):
        low, rest = divmod(i * (size - 1), out - 1) if out > 1 else (0, 0)
        t = rest / (out - 1) if out > 1 else 0
        weights[i, low] += 1 - t
        if t:
            weights[i, low + 1] += t
    return weights


@pytest.mark.parametrize("size, out, first, part", RESIZED)
def test_interp_is_bilinear_and_its_backward_the_transpose(size, out, first, part, isa, every_way):
    n, c = 2, 20
    x, dy = normal(1, n, *size, c), normal(2, n, *out, c)
    before = normal(3, *x.shape)
    how = {"n": n, "c": c, "size": size, "out": out, "begin": first, "region": part}

    def make(memory):
        X, DY, y, dx = memory.put(x), memory.put(dy), memory.empty(*dy.shape), memory.empty(*x.shape)
        added = memory.put(before)
        launch("interp_forward", **how, y=at(y), x=at(X))()
        launch("interp_backward", **how, dx=at(dx), dy=at(DY))()
        launch("interp_backward", **how, dx=at(added), dy=at(DY), accumulate=True)()
        return y, dx, added

    y, dx, added = every_way(make)
    rows, columns = line(part[0], out[0]), line(part[1], out[1])
    inside = (slice(None), slice(first[0], first[0] + part[0]), slice(first[1], first[1] + part[1]))
    close(y, np.einsum("ih,jw,nhwc->nijc", rows, columns, x[inside]))
    want = np.zeros(x.shape)
    want[inside] = np.einsum("ih,jw,nijc->nhwc", rows, columns, dy)
    close(dx, want)
    close(added, before + want)
