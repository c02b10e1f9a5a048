"""Shape layers move elements and change none."""

from __future__ import annotations

import pytest

from tests.backends.cuda.harness import Case, Way, layer_of
from tests.emulator.emulate import WAYS

CASES = {
    "concat channels": ('type: "Concat"', [(2, 3, 5, 7), (2, 8, 5, 7), (2, 1, 5, 7)]),
    "concat channels by fours": ('type: "Concat"', [(2, 4, 5, 7), (2, 8, 5, 7)]),
    "concat items": ('type: "Concat" concat_param { axis: 0 }', [(2, 3, 5, 7), (1, 3, 5, 7)]),
    "concat columns": ('type: "Concat" concat_param { axis: 3 }', [(2, 3, 5, 7), (2, 3, 5, 2)]),
    "concat one": ('type: "Concat"', [(2, 3, 5, 7)]),
    "slice channels": ('type: "Slice" top: "a" top: "b" slice_param { slice_point: 4 }', [(2, 12, 5, 3)]),
    "slice rows": ('type: "Slice" top: "a" top: "b" top: "c" slice_param { axis: 2 }', [(2, 4, 6, 3)]),
    "slice one": ('type: "Slice" top: "a"', [(2, 12, 5, 3)]),
    "split": ('type: "Split" top: "a" top: "b" top: "c"', [(2, 3, 5, 7)]),
    "flatten": ('type: "Flatten"', [(3, 5, 7, 2)]),
    "flatten many": ('type: "Flatten"', [(2, 36, 9, 5)]),
    "flatten one pixel": ('type: "Flatten"', [(3, 35, 1, 1)]),
    "flatten rows": ('type: "Flatten" flatten_param { axis: 2 }', [(3, 5, 7, 2)]),
    "an image from a row": ('type: "Reshape" reshape_param { shape { dim: 0 dim: 5 dim: 7 dim: -1 } }', [(3, 70)]),
    "an image from an image": (
        'type: "Reshape" reshape_param { shape { dim: 3 dim: 10 dim: 7 dim: 2 } }',
        [(6, 5, 7, 2)],
    ),
    "tile channels": ('type: "Tile" tile_param { tiles: 3 }', [(2, 5, 4, 3)]),
    "tile rows": ('type: "Tile" tile_param { axis: 2 tiles: 2 }', [(2, 4, 4, 3)]),
    "crop": ('type: "Crop" crop_param { axis: 2 offset: 1 offset: 2 }', [(2, 3, 7, 9), (2, 3, 4, 5)]),
    "crop channels": (
        'type: "Crop" crop_param { axis: 1 offset: 4 offset: 1 offset: 0 }',
        [(2, 12, 7, 9), (2, 8, 4, 5)],
    ),
    "crop a row": ('type: "Crop" crop_param { axis: 1 offset: 3 }', [(4, 9), (4, 5)]),
    "permute": ('type: "Permute" permute_param { order: 3 order: 1 order: 0 }', [(2, 3, 5, 7)]),
    "permute six axes": (
        'type: "Permute" permute_param { order: 5 order: 3 order: 1 order: 4 order: 2 }',
        [(2, 3, 2, 3, 2, 4)],
    ),
    "silence": ('type: "Silence"', [(2, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_every_element_arrives_where_caffe_puts_it(name, rng):
    text, shapes = CASES[name]
    Case(layer_of(text, *shapes), [rng.standard_normal(s) for s in shapes], rng=rng, bounds={"dx0": 1e-7}).check()


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_block_of_a_transposition_may_take_several_items(way, rng, monkeypatch):
    monkeypatch.setattr("layermem.backends.cuda.copy.MAX_ITEMS", 2)
    shape = (5, 3, 4, 9)
    Case(layer_of('type: "Flatten"', shape), [rng.standard_normal(shape)], rng=rng, way=Way(*way)).check()
