"""Interp: bilinear resizing up, down, to and from a point, and cropped."""

from __future__ import annotations

import pytest

from tests.backends.cuda.harness import Case, layer_of

CASES = {
    "up": ("height: 13 width: 9", (2, 3, 7, 5)),
    "up by fours": ("zoom_factor: 8", (1, 8, 3, 4)),
    "down": ("height: 3 width: 4", (2, 4, 7, 9)),
    "to a point": ("height: 1 width: 5", (2, 4, 7, 9)),
    "from a point": ("height: 4 width: 5", (2, 4, 1, 1)),
    "cropped": ("height: 6 width: 5 pad_beg: -1 pad_end: -2", (2, 4, 9, 8)),
    "the same": ("height: 7 width: 5", (1, 3, 7, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_interp_agrees_with_double_precision(name, rng):
    settings, shape = CASES[name]
    layer = layer_of(f'type: "Interp" interp_param {{ {settings} }}', shape)
    Case(layer, [rng.standard_normal(shape)], rng=rng).check()
