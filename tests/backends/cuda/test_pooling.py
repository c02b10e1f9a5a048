"""Pooling, with windows that overlap, leave gaps, hang over the border, or are the whole image."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cuda.harness import Case, layer_of

CASES = {
    "two by two": ("kernel_size: 2 stride: 2", (2, 4, 8, 6)),
    "odd size": ("kernel_size: 2 stride: 2", (2, 3, 7, 5)),
    "overlapping": ("kernel_size: 3 stride: 2", (2, 20, 13, 7)),
    "overlapping by two rows": ("kernel_size: 5 stride: 2 pad: 2", (1, 8, 9, 7)),
    "padded": ("kernel_size: 3 stride: 1 pad: 1", (2, 36, 7, 7)),
    "padded, hanging over": ("kernel_size: 3 stride: 2 pad: 1", (1, 3, 8, 10)),
    "gaps": ("kernel_h: 1 kernel_w: 2 stride: 3", (2, 4, 13, 13)),
    "width one": ("kernel_h: 2 kernel_w: 1 stride: 1", (3, 5, 7, 1)),
    "whole image": ("global_pooling: true", (2, 20, 7, 5)),
    "more than 256 taps": ("global_pooling: true", (2, 4, 17, 18)),
    "rounded down": ("kernel_size: 3 stride: 2 round_mode: FLOOR", (1, 4, 8, 8)),
}


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("name", CASES)
def test_pooling_agrees_with_double_precision(name, method, rng):
    settings, shape = CASES[name]
    layer = layer_of(f'type: "Pooling" pooling_param {{ pool: {method} {settings} }}', shape)
    Case(layer, [rng.standard_normal(shape)], rng=rng).check()


def test_of_equal_elements_the_first_gets_the_gradient(rng):
    layer = layer_of('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', (2, 4, 7, 7))
    Case(layer, [rng.integers(0, 2, (2, 4, 7, 7)).astype(np.float64)], rng=rng).check()
