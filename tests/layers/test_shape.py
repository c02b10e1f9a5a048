"""Shape layers: the new place of each element, views, refusals."""

import numpy as np
import pytest

from layermem.backends.reference.base import REGISTRY, ReferenceCall, axes_of_caffe, stored
from layermem.errors import InputError
from layermem.layers import Tensor
from tests.cases.shapes import SHAPE_PAIRS
from tests.layers.harness import backward, check_gradients, forward, layer_of, logical


def counting(shape, start=0):
    return np.arange(start, start + np.prod(shape), dtype=float).reshape(shape)


def tops(count):
    return " ".join(f'top: "t{i}"' for i in range(count))


# -- memory order -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one, other", SHAPE_PAIRS)
def test_two_shapes_are_ordered_alike_if_the_same_memory_reads_the_same_in_both(one, other):
    a, b = Tensor(one), Tensor(other)
    if a.count == b.count:
        place = logical(a)
        place[...] = counting(one)
        read = axes_of_caffe(stored(place).reshape(b.stored))
        alike = read.reshape(-1).tolist() == counting(one).reshape(-1).tolist()
    else:
        alike = False
    assert a.ordered_like(b) == b.ordered_like(a) == alike


@pytest.mark.parametrize(
    "shape, axis, around",
    [
        ((2, 3, 4, 5), 1, (40, 3, 1)),
        ((2, 3, 4, 5), 0, (1, 2, 60)),
        ((2, 3, 4, 5), 2, (2, 4, 15)),
        ((7, 8), 1, (7, 8, 1)),
    ],
)
def test_an_axis_of_a_tensor_has_blocks_and_rows_around_it_in_memory(shape, axis, around):
    assert Tensor(shape).around(axis) == around


# -- Concat, Slice, Split -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
@pytest.mark.parametrize("sizes", [(2, 1, 3), (2,)])
def test_concat_joins_along_any_axis(axis, sizes):
    shapes = [[2, 3, 4, 2] for _ in sizes]
    for shape, size in zip(shapes, sizes):
        shape[axis] = size
    xs = [counting(shape, 100 * i) for i, shape in enumerate(shapes)]
    layer = layer_of(f'type: "Concat" concat_param {{ axis: {axis} }}', *shapes)
    run = check_gradients(layer, *xs)
    np.testing.assert_array_equal(run.arrays["y0"], np.concatenate(xs, axis))


def test_concat_reads_the_field_of_older_nets():
    layer = layer_of('type: "Concat" concat_param { concat_dim: 0 }', (2, 3), (1, 3))
    assert layer.tops[0].shape == (3, 3)


def test_concat_writes_only_the_gradients_that_are_wanted():
    layer = layer_of('type: "Concat"', (2, 3), (2, 4))
    run = backward(forward(layer, counting((2, 3)), counting((2, 4))), ["dx1"], counting((2, 7)))
    assert "dx0" not in run.arrays and run.arrays["dx1"].tolist() == [[3, 4, 5, 6], [10, 11, 12, 13]]


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -2])
@pytest.mark.parametrize("points, parts", [((), 3), ((1, 2), 3), ((4,), 2), ((), 1)])
def test_slice_cuts_along_any_axis(axis, points, parts):
    shape = [2, 2, 2, 2]
    shape[axis] = 6
    settings_text = " ".join(f"slice_point: {p}" for p in points)
    layer = layer_of(f'type: "Slice" {tops(parts)} slice_param {{ axis: {axis} {settings_text} }}', shape)
    run = check_gradients(layer, counting(shape))
    for i, part in enumerate(np.split(counting(shape), points or parts, axis)):
        np.testing.assert_array_equal(run.arrays[f"y{i}"], part)


def test_slice_undoes_concat():
    shapes = [(2, 3, 2, 2), (2, 1, 2, 2), (2, 2, 2, 2)]
    xs = [counting(shape, 50 * i) for i, shape in enumerate(shapes)]
    joined = forward(layer_of('type: "Concat"', *shapes), *xs).arrays["y0"]
    layer = layer_of(f'type: "Slice" {tops(3)} slice_param {{ slice_point: 3 slice_point: 4 }}', joined.shape)
    cut = forward(layer, joined).arrays
    for i, x in enumerate(xs):
        np.testing.assert_array_equal(cut[f"y{i}"], x)


@pytest.mark.parametrize("count", [1, 3])
def test_split_hands_out_copies_and_sums_their_gradients(count):
    x = counting((2, 3, 2, 2))
    run = check_gradients(layer_of(f'type: "Split" {tops(count)}', x.shape), x)
    for i in range(count):
        np.testing.assert_array_equal(run.arrays[f"y{i}"], x)


@pytest.mark.parametrize(
    "text, shapes, remedy",
    [
        ('type: "Concat"', [(2, 3), (2, 3, 1)], "'x0' of shape 2x3 and 'x1' of shape 2x3x1 along axis 1"),
        ('type: "Concat"', [(2, 3), (3, 3)], "make all other axes equal"),
        ('type: "Concat" concat_param { axis: 2 }', [(2, 3)], "use -2 to 1"),
        ('type: "Concat" concat_param { axis: 1 concat_dim: 1 }', [(2, 3)], "remove concat_dim"),
        (f'type: "Slice" {tops(2)}', [(2, 3)], "leaves 1; give slice_point"),
        (f'type: "Slice" {tops(3)} slice_param {{ slice_point: 1 }}', [(2, 4)], "give 2"),
        (f'type: "Slice" {tops(2)} slice_param {{ slice_point: 4 }}', [(2, 4)], "rise from 1 to 3"),
        (f'type: "Slice" {tops(3)} slice_param {{ slice_point: 2 slice_point: 1 }}', [(2, 4)], "rise from 1 to 3"),
        (f'type: "Slice" {tops(2)} slice_param {{ slice_point: 0 }}', [(2, 4)], "rise from 1 to 3"),
        ('type: "Flatten" flatten_param { axis: 2 end_axis: 1 }', [(2, 3, 4)], "at most end_axis"),
        ('type: "Flatten"', [(5,)], "names axis 1"),
        ('type: "Tile" tile_param { axis: 1 }', [(2, 3)], "has tiles 0; set tile_param { tiles } to at least 1"),
        ('type: "Reshape" reshape_param { shape { dim: -1 dim: -1 } }', [(2, 3)], "at most one -1"),
        (
            'type: "Reshape" reshape_param { shape { %s dim: -1 } }' % ("dim: 1 " * 32),
            [(2, 3)],
            "of 33 axes.* at most 32",
        ),
        (
            'type: "Reshape" reshape_param { shape { %s dim: -1 } }' % ("dim: 1 " * 71),
            [(2, 3)],
            "of 72 axes.* at most 32",
        ),
        ('type: "Reshape" reshape_param { shape { dim: -2 } }', [(2, 3)], "positive numbers"),
        ('type: "Reshape" reshape_param { shape { dim: 4 dim: -1 } }', [(2, 3)], "6 elements is no multiple of 4"),
        ('type: "Reshape" reshape_param { shape { dim: 7 } }', [(2, 3)], r"2x3 \(6 elements\) into 7 \(7\)"),
        ('type: "Reshape" reshape_param { shape { dim: 0 dim: 0 dim: 0 } }', [(2, 3)], "copies axis 2"),
        ('type: "Reshape" reshape_param { axis: 3 shape { dim: 1 } }', [(2, 3)], "use -3 to 2"),
        ('type: "Reshape" reshape_param { axis: 1 num_axes: 2 shape { dim: 3 } }', [(2, 3)], "num_axes up to 1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_a_remedy(text, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer_of(text, *shapes)


# -- Flatten, Reshape ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, shape, flat",
    [
        ("", (2, 3, 6, 5), (2, 90)),
        ("axis: 2", (2, 3, 6, 5), (2, 3, 30)),
        ("end_axis: -2", (2, 3, 6, 5), (2, 18, 5)),
        ("axis: 0 end_axis: -2", (2, 3, 6, 5), (36, 5)),
        ("axis: 0", (2, 3), (6,)),
        ("", (2, 3, 1, 1), (2, 3)),
    ],
)
def test_flatten_joins_axes_and_keeps_the_order_of_elements(settings, shape, flat):
    layer = layer_of(f'type: "Flatten" flatten_param {{ {settings} }}', shape)
    assert layer.tops[0].shape == flat
    x = counting(shape)
    run = backward(forward(layer, x), ["dx0"], counting(flat, 1000))
    np.testing.assert_array_equal(run.arrays["y0"], x.reshape(flat))
    np.testing.assert_array_equal(run.arrays["dx0"], x + 1000)


@pytest.mark.parametrize(
    "settings, shape, new",
    [
        ("shape { dim: 0 dim: -1 dim: 5 }", (2, 3, 6, 5), (2, 18, 5)),
        ("shape { dim: 0 dim: 0 dim: -1 dim: 10 }", (2, 3, 6, 5), (2, 3, 3, 10)),
        ("shape { dim: 2 dim: 3 dim: 2 dim: 3 dim: 5 }", (2, 3, 6, 5), (2, 3, 2, 3, 5)),
        ("axis: 1 shape { dim: -1 }", (2, 3, 6, 5), (2, 90)),
        ("axis: 1 num_axes: 2 shape { dim: 18 }", (2, 3, 6, 5), (2, 18, 5)),
        ("axis: 1 num_axes: 0 shape { dim: 1 }", (2, 3), (2, 1, 3)),
        ("axis: -1 shape { dim: 1 dim: 1 }", (2, 3), (2, 3, 1, 1)),
        ("axis: -3 num_axes: 1 shape { dim: 1 dim: 2 }", (2, 3), (1, 2, 3)),
        ("axis: 1 num_axes: 1 shape { dim: 0 }", (2, 3, 4), (2, 3, 4)),
    ],
)
def test_reshape_copies_fits_and_replaces_axes(settings, shape, new):
    layer = layer_of(f'type: "Reshape" reshape_param {{ {settings} }}', shape)
    assert layer.tops[0].shape == new
    x = counting(shape)
    run = backward(forward(layer, x), ["dx0"], counting(new, 1000))
    np.testing.assert_array_equal(run.arrays["y0"], x.reshape(new))
    np.testing.assert_array_equal(run.arrays["dx0"], x + 1000)


@pytest.mark.parametrize(
    "text, shape, view",
    [
        ('type: "Flatten"', (2, 3, 4, 5), False),
        ('type: "Flatten"', (2, 3, 1, 1), True),
        ('type: "Flatten"', (2, 1, 4, 5), True),
        ('type: "Flatten"', (2, 3, 4), True),
        ('type: "Reshape" reshape_param { shape { dim: 0 dim: 0 dim: -1 dim: 1 } }', (2, 3, 4, 5), True),
        ('type: "Reshape" reshape_param { shape { dim: 0 dim: 5 dim: 4 dim: 3 } }', (2, 3, 4, 5), False),
        ('type: "Reshape" reshape_param { shape { dim: 0 dim: 3 dim: 2 dim: 2 } }', (2, 12), False),
        ('type: "Reshape" reshape_param { shape { dim: 0 dim: 12 dim: 1 dim: 1 } }', (2, 12), True),
    ],
)
def test_a_rename_that_keeps_the_order_of_memory_may_lie_where_its_input_lies(text, shape, view):
    layer = layer_of(text, shape)
    (back,) = layer.backward(["dx0"])
    assert [o.kind for o in layer.forward().overlays] == ["forward"] * view
    assert [o.kind for o in back.overlays] == ["gradient"] * view


def test_a_view_in_its_own_memory_is_not_touched():
    layer = layer_of('type: "Flatten"', (2, 3))
    x = np.zeros((2, 3))
    x.flags.writeable = False  # a kernel that copied would raise
    REGISTRY.bind(layer.record, "forward", ReferenceCall({"x0": x, "y0": x}))


# -- Tile, Silence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_tile_repeats_along_an_axis(axis):
    x = counting((2, 3, 2, 2))
    layer = layer_of(f'type: "Tile" tile_param {{ axis: {axis} tiles: 3 }}', x.shape)
    run = check_gradients(layer, x)
    np.testing.assert_array_equal(run.arrays["y0"], np.concatenate([x] * 3, axis))


def test_silence_swallows_blobs_and_touches_nothing():
    layer = layer_of('type: "Silence"', (2, 3), (4,))
    step = layer.forward()
    assert (layer.tops, step.reads, step.writes, tuple(layer.backward(["dx0"]))) == ((), (), (), ())
    forward(layer, counting((2, 3)), counting((4,)))
