"""Crops between tops of different sizes, with the offsets of published nets."""

# ruff: noqa: C408  dict(..) as scripts for pycaffe write it

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
    """Those that the prototxts of voc-fcn32s and voc-fcn16s have: 19 with stride 32, 27 with stride 16."""
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
    assert coord_map_from_to(wide, DATA).shift.tolist() == [-2]
    cut = L.Crop(DATA, wide, axis=2, offset=2)
    assert coord_map_from_to(cut, wide).shift.tolist() == [0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: crop(stages(DATA, 1), DATA), "the tops differ in scale by .0.5., which no crop changes; use strides"),
        (lambda: crop(L.Convolution(DATA, kernel_size=3, num_output=1), DATA), "a crop would begin at .-1.0.; change"),
        (lambda: crop(L.Input(), DATA), "the tops come from no common one"),
        (lambda: crop(L.Pooling(DATA, kernel_h=2, kernel_w=2), DATA), "crop does not read kernel_h of a Pooling; give"),
    ],
)  # fmt: skip
def test_what_no_crop_makes_equal_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()
