"""Maps and crops between tops of different sizes: those of pycaffe, offsets of published nets, random chains."""

# ruff: noqa: C408  dict(..) as scripts for pycaffe write it

import random

import numpy as np
import pytest

from layermem import L, P
from layermem.caffe.coord_map import coord_map_from_to, crop
from layermem.errors import InputError

DATA = L.Input(shape=dict(dim=[1, 3, 500, 500]))


def stages(top, count):
    """Convolutions and poolings by 2, as in VGG; the first convolution has pad 100."""
    for stage in range(count):
        top = L.ReLU(L.Convolution(top, kernel_size=3, num_output=2, pad=100 if stage == 0 else 1), in_place=True)
        top = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    return top


def up(top, stride):
    return L.Deconvolution(top, convolution_param=dict(num_output=2, kernel_size=2 * stride, stride=stride))


def offset(top):
    return list(top.fn.params["offset"]), top.fn.params["axis"]


def test_the_offsets_are_those_of_fcn():
    """The offsets in the prototxts of voc-fcn32s and voc-fcn16s: 19 with stride 32, 27 with stride 16."""
    deep = L.Convolution(stages(DATA, 5), kernel_size=7, num_output=2)
    assert offset(crop(up(deep, 32), DATA)) == ([19], 2)
    middle = stages(DATA, 4)
    assert offset(
        crop(
            up(
                crop(
                    L.Convolution(middle, kernel_size=1, num_output=2),
                    up(L.Convolution(L.Pooling(middle, kernel_size=2, stride=2), kernel_size=7, num_output=2), 2),
                ),
                16,
            ),
            DATA,
        )
    ) == ([27], 2)


def test_dilation_counts_and_so_do_crops():
    wide = L.Convolution(DATA, kernel_size=3, dilation=2, num_output=2)
    assert coord_map_from_to(wide, DATA).shift.tolist() == [2]
    cut = L.Crop(DATA, wide, axis=2, offset=2)
    assert coord_map_from_to(cut, wide).shift.tolist() == [0]


def conv_pool_deconv(data=DATA, *, conv=None, pool=2, stride=2, pad=0):
    """The net of pycaffe's own tests; its expectations are in the tests below."""
    top = L.Convolution(data, num_output=10, **{"kernel_size": 3, **(conv or {})})
    top = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=pool, stride=pool)
    return L.Deconvolution(top, num_output=10, kernel_size=2 * stride, stride=stride, pad=pad)


@pytest.mark.parametrize(
    ("net", "shift"),
    [
        ({}, 0),
        ({"pool": 4, "stride": 4}, -1),
        ({"conv": {"pad": 3}}, -3),
        ({"pad": 3}, 3),
        ({"conv": {"pad": 3}, "pad": 3}, 0),
        ({"conv": {"kernel_size": 1}}, -1),
    ],
)
def test_maps_are_those_of_pycaffe(net, shift):
    axis, scale, found = coord_map_from_to(conv_pool_deconv(**net), DATA)
    assert (axis, scale.tolist(), found.tolist()) == (1, [1], [shift])


def test_each_axis_of_a_map_is_that_of_its_own_sizes():
    clip = L.Input(shape=dict(dim=[2, 3, 100, 100, 100]))
    axis, scale, shift = coord_map_from_to(conv_pool_deconv(clip, conv={"stride": [1] * 3, "pad": [0, 1, 2]}), clip)
    assert (axis, scale.tolist(), shift.tolist()) == (1, [1, 1, 1], [0, -1, -2])


def test_a_crop_of_a_crop_adds_its_offset():
    whole = conv_pool_deconv()
    before, after = (coord_map_from_to(top, DATA) for top in (whole, L.Crop(whole, DATA, axis=2, offset=7)))
    assert (after.axis, after.scale, after.shift) == (before.axis, before.scale, before.shift + 7)


# -- random chains, whose coordinates follow from the elements that a layer connects ---------------------------------


def points_of(kind, kernel_size=1, stride=1, pad=0, dilation=1, offset=0):
    """Two coordinates of a bottom and their coordinates in the top: the middle of the elements that a window
    connects."""
    taps = np.arange(kernel_size) * dilation - pad
    if kind in ("Convolution", "Pooling", "Im2col"):  # output i reads taps + stride i
        return [(np.mean(taps + stride * i), i) for i in (0, 1)]
    if kind == "Deconvolution":  # input i is written to them
        return [(i, np.mean(taps + stride * i)) for i in (0, 1)]
    kept = np.arange(100)[offset:]
    return [(kept[i], i) for i in (0, 1)]


def along(points, place):
    """The value at `place` of the line through two points."""
    (x0, y0), (x1, y1) = points
    return y0 + (place - x0) * (y1 - y0) / (x1 - x0)


WINDOWED = {"kernel_size": (1, 2, 3, 5), "stride": (1, 2, 4), "pad": (0, 1, 3), "dilation": (1, 2)}


def random_layer(rng, top, axis):
    """A layer over `top`, and for each spatial axis its points."""
    kinds = ("Convolution", "Im2col", "Deconvolution", "Crop", "Scale", "Eltwise", "ReLU", "Pooling")
    kind = rng.choice(kinds[: 8 if axis == 1 else 7])  # a Pooling is over images
    choices = {"Crop": {"offset": (0, 1, 2, 5)}}.get(kind, {} if kind in ("Scale", "Eltwise", "ReLU") else WINDOWED)
    count = rng.choice((1, 2))  # of values: one for both axes, or one for each
    sizes = {name: [rng.choice(values) for _ in range(count)] for name, values in choices.items()}
    if kind == "Pooling":
        del sizes["dilation"]
        sizes = {name: values[0] for name, values in sizes.items()}
    more = {"Crop": {"axis": axis + 1}}.get(kind, {"axis": axis} if kind in kinds[:3] else {})
    bottoms = {"Crop": (top, DATA), "Eltwise": (top, top)}.get(kind, (top,))
    each = [{name: np.resize(values, 2)[i] for name, values in sizes.items()} for i in range(2)]
    return getattr(L, kind)(*bottoms, **sizes, **more), [points_of(kind, **given) for given in each]


def random_chain(rng, top, axis):
    steps = []
    for _ in range(rng.randint(0, 5)):
        top, points = random_layer(rng, top, axis)
        steps.append(points)
    return top, steps


@pytest.mark.parametrize("seed", range(150))
def test_random_chains_map_to_the_coordinates_of_what_their_layers_connect(seed):
    rng = random.Random(seed)
    axis = rng.choice((1, 1, 2))
    common, _ = random_chain(rng, DATA, axis)
    (source, to_source), (target, to_target) = (random_chain(rng, common, axis) for _ in range(2))
    found = coord_map_from_to(source, target)
    assert found.axis in (None, axis)
    offsets = []
    for spatial in range(2):
        ends = []
        for place in (0.0, 10.0):  # in the common top
            here = there = place
            for step in to_source:
                here = along(step[spatial], here)
            for step in to_target:
                there = along(step[spatial], there)
            ends.append((here, there))
        scale, shift = (np.broadcast_to(each, 2)[spatial] for each in (found.scale, found.shift))
        for here, there in ends:
            np.testing.assert_allclose(scale * here + shift, there, atol=1e-9)
        offsets.append([here - there for here, there in ends])
    if np.ptp(offsets, axis=1).any() or np.min(offsets) < 0 or np.any(np.mod(offsets, 1)):
        with pytest.raises(InputError):
            crop(source, target)
        return
    cut = crop(source, target).fn.params
    assert cut["axis"] == (found.axis or 1) + 1
    assert np.broadcast_to(cut["offset"], 2).tolist() == [begin for begin, _ in offsets]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: crop(stages(DATA, 1), DATA), "the tops differ in scale by .2.0., which no crop changes; use strides"),
        (lambda: crop(L.Convolution(DATA, kernel_size=3, num_output=1), DATA), "a crop would begin at .-1.0.; change"),
        (lambda: crop(L.Input(), DATA), "the tops come from no common one"),
        (lambda: crop(L.Pooling(DATA, kernel_h=2, kernel_w=2), DATA), "crop does not read kernel_h of a Pooling; give"),
    ],
)
def test_maps_that_no_crop_makes_equal_are_refused(call, says):
    """The types are pycaffe's: RuntimeError for tops that are not connected, else AssertionError."""
    with pytest.raises(InputError, match=says) as refused:
        call()
    assert isinstance(refused.value, RuntimeError if "no common" in says else AssertionError)
