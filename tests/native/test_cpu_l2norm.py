"""Vectors of length one on the cpu device, against float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch, query
from tests.cases.normalization import LENGTHS
from tests.native.numbers import at, close, normal


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("pixels, channels, group", LENGTHS)
def test_groups_of_pixels_have_length_one(pixels, channels, group, shared, isa, every_way):
    x, dy = normal(1, pixels, channels), normal(2, pixels, channels)
    scale = normal(3, 1 if shared else channels)
    before, of_scale = normal(4, pixels, channels), normal(5, *scale.shape)
    shape = {"pixels": pixels, "channels": channels, "group": group, "shared": shared}

    def make(memory):
        X, DY, W = memory.put(x), memory.put(dy), memory.put(scale)
        y, dx, dw = memory.empty(*x.shape), memory.empty(*x.shape), memory.empty(*scale.shape)
        added, added_scale = memory.put(before), memory.put(of_scale)
        how = {**shape, "eps": 0.5, "workspace": memory.workspace(query("l2norm_workspace_bytes", **shape))}
        launch("l2norm_forward", **how, y=at(y), x=at(X), scale=at(W))()
        both = {"x": at(X), "dy": at(DY), "scale": at(W)}
        launch("l2norm_backward", **how, dx=at(dx), dscale=at(dw), **both)()
        launch(
            "l2norm_backward",
            **how,
            dx=at(added),
            dscale=at(added_scale),
            accumulate_dx=True,
            accumulate_dscale=True,
            **both,
        )()
        return y, dx, dw, added, added_scale

    y, dx, dw, added, added_scale = every_way(make)
    groups, gradient = x.reshape(-1, group * channels).astype(float), (dy * scale).reshape(-1, group * channels)
    norm = np.sqrt((groups**2).sum(axis=1, keepdims=True) + 0.5)
    unit = (groups / norm).reshape(x.shape)
    close(y, unit * scale)
    want = ((gradient - groups * (groups * gradient).sum(axis=1, keepdims=True) / norm**2) / norm).reshape(x.shape)
    close(dx, want)
    of_w = (dy * unit).sum() if shared else (dy * unit).sum(axis=0)
    close(dw, np.reshape(of_w, scale.shape))
    close(added, before + want)
    close(added_scale, of_scale + np.reshape(of_w, scale.shape))
