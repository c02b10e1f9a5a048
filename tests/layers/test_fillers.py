from math import ceil, prod, sqrt

import numpy as np
import pytest
from google.protobuf import text_format

from layermem.errors import InputError
from layermem.layers.fillers import FILLERS, PART, fan, fill, fill_parts
from layermem.proto.schema import FillerParameter
from layermem.utils.seeds import generator

CONV = (60, 20, 5, 5)  # fan-in 500, fan-out 1500


def filler(text: str):
    return text_format.Parse(text, FillerParameter())


@pytest.mark.parametrize("kind", FILLERS)
def test_a_filler_gives_the_same_values_for_the_same_name_only(kind):
    spec = filler(f'type: "{kind}" value: 3')
    once, again, other = (fill(spec, (4, 3, 5, 5), 1, name, 0) for name in ("a", "a", "b"))
    assert once.dtype == np.float32 and once.shape == (4, 3, 5, 5) and once.flags.c_contiguous
    assert np.array_equal(once, again)
    assert np.array_equal(once, other) == (kind in ("constant", "bilinear"))


def uniform(low, high, shape, draw):
    values = draw.random(shape, np.float32) * np.float32(high - low) + np.float32(low)
    return np.minimum(values, np.nextafter(np.float32(high), np.float32(low)))


def normal(mean, std, shape, draw):
    return draw.standard_normal(shape, np.float32) * np.float32(std) + np.float32(mean)


def sparse(shape, draw):
    return normal(0, 2, shape, draw) * (draw.random(shape, np.float32) < 3 / shape[0])


def unitball(shape, draw):
    rows = draw.random((shape[0], prod(shape[1:])))
    return (rows / rows.sum(axis=1, keepdims=True)).reshape(shape)


def bilinear(shape, draw):
    half = ceil(shape[3] / 2)
    tent = 1 - np.abs(np.arange(shape[3]) / half - (shape[3] - 1) / (2 * half))
    return np.broadcast_to(np.outer(tent, tent), shape)


WHOLE = {  # each filler as one draw of the whole blob
    'type: "constant" value: 0.1': lambda shape, draw: np.full(shape, 0.1),
    'type: "uniform" min: -0.3 max: 0.7': lambda shape, draw: uniform(
        np.float32(-0.3).item(), np.float32(0.7).item(), shape, draw
    ),
    'type: "gaussian" mean: 1 std: 0.25': lambda shape, draw: normal(1, 0.25, shape, draw),
    'type: "gaussian" std: 2 sparse: 3': sparse,
    'type: "positive_unitball"': unitball,
    'type: "xavier"': lambda shape, draw: uniform(
        -sqrt(3 * shape[0] / prod(shape)), sqrt(3 * shape[0] / prod(shape)), shape, draw
    ),
    'type: "msra"': lambda shape, draw: normal(0, sqrt(2 * shape[0] / prod(shape)), shape, draw),
    'type: "bilinear"': bilinear,
}


@pytest.mark.parametrize("text", WHOLE)
@pytest.mark.parametrize("shape", [(7, 37, 11, 11), (2, 3, 150, 150), (1, 5, 2, 2)])
def test_parts_have_the_bits_of_one_draw_of_the_whole_blob(text, shape):
    """Tests blobs with parts that end within a row, with parts of many rows, and with rows larger than a part."""
    spec, count = filler(text), prod(shape)
    whole = np.ascontiguousarray(WHOLE[text](shape, generator(1, "conv", 0)), np.float32)
    assert fill(spec, shape, 1, "conv", 0).tobytes() == whole.tobytes()
    for unit in (1, count // shape[0]):
        parts = [part.copy() for part in fill_parts(spec, shape, 1, "conv", 0, unit=unit)]
        assert b"".join(part.tobytes() for part in parts) == whole.tobytes()
        assert all(part.size % unit == 0 for part in parts)
        if "unitball" not in text:
            assert max(part.size for part in parts) <= max(PART, unit)


def test_a_blob_without_values_has_no_part():
    assert fill(filler('type: "gaussian"'), (0, 3), 1).shape == (0, 3)


def test_constant_is_its_value_and_zero_by_default():
    assert np.array_equal(fill(filler('type: "constant" value: 0.25'), (2, 3), 1), np.full((2, 3), 0.25, np.float32))
    assert not fill(FillerParameter(), (5,), 1).any()


def test_a_blob_without_axes_holds_one_value():
    assert fill(filler('type: "constant" value: 0.25'), (), 1).shape == ()


def test_uniform_stays_between_its_ends_and_fills_them():
    values = fill(filler('type: "uniform" min: -2 max: 6'), (100000,), 1)
    assert values.min() >= -2 and values.max() < 6
    assert abs(values.mean() - 2) < 0.05 and abs(values.std() - 8 / 12**0.5) < 0.05


def test_uniform_labels_never_reach_the_number_of_classes():
    class Ones:
        def random(self, out, dtype):
            out[:] = 1 - 2.0**-24

    [values] = FILLERS["uniform"](filler('type: "uniform" min: 0 max: 1000'), (3,), Ones(), [3])
    assert values.max() < 1000 and int(values.max()) == 999


def test_gaussian_has_its_mean_and_deviation():
    values = fill(filler('type: "gaussian" mean: 1 std: 0.1'), (300, 400), 1)
    assert abs(values.mean() - 1) < 0.001 and abs(values.std() - 0.1) < 0.001


def test_a_sparse_gaussian_leaves_so_many_inputs_of_each_output():
    values = fill(filler('type: "gaussian" std: 1 sparse: 10'), (100, 2000), 1)
    assert abs((values != 0).mean() - 0.1) < 0.003
    assert abs(values[values != 0].std() - 1) < 0.02


def test_each_output_of_the_positive_unitball_sums_to_one():
    values = fill(filler('type: "positive_unitball"'), CONV, 1)
    assert values.min() >= 0
    np.testing.assert_allclose(values.reshape(60, -1).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("norm", "n"), [("FAN_IN", 500), ("FAN_OUT", 1500), ("AVERAGE", 1000)])
def test_xavier_and_msra_divide_by_the_fan(norm, n):
    xavier = filler(f'type: "xavier" variance_norm: {norm}')
    assert fan(xavier, CONV) == n
    values = fill(xavier, CONV, 1)
    assert np.abs(values).max() <= (3 / n) ** 0.5
    assert abs(values.std() / n**-0.5 - 1) < 0.02
    values = fill(filler(f'type: "msra" variance_norm: {norm}'), CONV, 1)
    assert abs(values.mean()) < 0.01 * (2 / n) ** 0.5 * 3
    assert abs(values.std() / (2 / n) ** 0.5 - 1) < 0.02


def test_the_fan_out_of_a_vector_is_its_length():
    assert fan(filler('type: "xavier" variance_norm: FAN_OUT'), (7,)) == 7


@pytest.mark.parametrize(
    ("size", "row"),
    [
        (1, [1]),
        (2, [0.5, 0.5]),
        (3, [0.5, 1, 0.5]),
        (4, [0.25, 0.75, 0.75, 0.25]),
        (6, [1 / 6, 0.5, 5 / 6, 5 / 6, 0.5, 1 / 6]),
        (7, [0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25]),
    ],
)
def test_bilinear_rows_are_those_of_caffe(size, row):
    values = fill(filler('type: "bilinear"'), (1, 1, size, size), 1)[0, 0]
    np.testing.assert_allclose(values, np.outer(row, row), rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 10])
def test_bilinear_is_the_tent_of_the_closed_form(size):
    values = fill(filler('type: "bilinear"'), (2, 3, size, size), 1)
    f = (size + 1) // 2
    c = (size - 1) / (2.0 * f)
    for y in range(size):
        for x in range(size):
            assert np.all(values[:, :, y, x] == np.float32((1 - abs(x / f - c)) * (1 - abs(y / f - c))))


def test_bilinear_weights_enlarge_a_constant_image_to_itself():
    weights = fill(filler('type: "bilinear"'), (1, 1, 4, 4), 1)[0, 0]
    out = np.zeros((14, 14), np.float32)  # a Deconvolution with stride 2 over a 6x6 image of ones
    for y in range(6):
        for x in range(6):
            out[2 * y : 2 * y + 4, 2 * x : 2 * x + 4] += weights
    np.testing.assert_allclose(out[2:-2, 2:-2], 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('type: "he"', "unknown filler type 'he' .choose from constant, uniform, gaussian"),
        ('type: "xavier" sparse: 3', "only 'gaussian' can be sparse"),
        ('type: "uniform" min: 2 max: 1', "min must not be above max"),
        ('type: "gaussian" std: -1', "must not be negative"),
    ],
)
def test_a_filler_that_cannot_be_is_refused(text, words):
    with pytest.raises(InputError, match=words):
        fill(filler(text), (2, 2), 1)


@pytest.mark.parametrize("shape", [(3, 3), (1, 1, 2, 3)])
def test_bilinear_refuses_what_is_no_square_window(shape):
    with pytest.raises(InputError, match="square 4-D windows"):
        fill(filler('type: "bilinear"'), shape, 1)
