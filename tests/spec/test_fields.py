"""Python values in fields of messages, and errors of those that do not fit."""
# ruff: noqa: C408  dict(..) as scripts for pycaffe write it

import numpy as np
import pytest

from layermem import L, P
from layermem.errors import InputError
from layermem.proto.schema import FillerParameter


def layer(top):
    return top.to_proto().layer[-1]


def test_single_values_lists_tuples_and_arrays_are_repeated_fields():
    for sizes, kept in ((3, [3]), ([3, 4], [3, 4]), ((3, 4), [3, 4]), (np.array([3, 4]), [3, 4]), (np.int64(3), [3])):
        assert list(layer(L.Convolution(num_output=1, kernel_size=sizes)).convolution_param.kernel_size) == kept


def test_dicts_and_messages_are_blocks():
    gaussian = FillerParameter(type="gaussian", std=0.5)
    for filler in (gaussian, dict(type="gaussian", std=0.5), dict(type="gaussian", std=np.float32(0.5))):
        assert layer(L.InnerProduct(num_output=1, weight_filler=filler)).inner_product_param.weight_filler == gaussian
    assert layer(L.Convolution(convolution_param={})).HasField("convolution_param")


def test_fields_go_to_the_block_before_the_layer():
    made = layer(L.Dropout(dropout_ratio=0.25, loss_weight=2, name="other", propagate_down=False))
    assert (made.dropout_param.dropout_ratio, list(made.loss_weight), made.name) == (0.25, [2], "other")
    crop = layer(L.Data(source="db", transform_param=dict(crop_size=3, mean_value=[1, 2])))
    assert (crop.transform_param.crop_size, list(crop.transform_param.mean_value)) == (3, [1, 2])
    assert layer(L.Deconvolution(convolution_param=dict(num_output=2))).convolution_param.num_output == 2


@pytest.mark.parametrize("kind", [L.Deconvolution, L.Im2col])
def test_a_type_that_shares_a_block_takes_its_fields(kind):
    assert layer(kind(kernel_size=3)).convolution_param.kernel_size == [3]


@pytest.mark.parametrize("value", [P.Pooling.AVE, "AVE", np.int32(1)])
def test_enums_take_numbers_and_names(value):
    assert layer(L.Pooling(pool=value)).pooling_param.pool == 1


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda: L.Convolution(kernal_size=3), "L.Convolution has no field 'kernal_size'; did you mean 'kernel_size'?"),
        (lambda: L.Convolution(includ=dict(phase=0)), "L.Convolution has no field 'includ'; did you mean 'include'?"),
        (lambda: L.LSTM(num_output=3), "no field 'num_output'; write convolution_param=dict(num_output=..)"),
        (lambda: L.ReLU(toaster=1), "L.ReLU has no field 'toaster'; it has engine, negative_slope"),
        (lambda: L.Silence(toaster=1), "L.Silence has no field 'toaster'; it has blobs, exclude, include"),
        (lambda: L.Convolution(weight_filler=dict(tpye="xavier")), "no field 'tpye'; did you mean 'type'"),
        (lambda: L.Input(shape=[dict(dims=3)]), "L.Input(shape=..) has no field 'dims'; did you mean 'dim'?"),
        (lambda: L.Convolution(kernel_size=2.5), "has kernel_size=2.5; it takes a whole number from 0 to 42"),
        (lambda: L.Convolution(num_output=-1), "L.Convolution has num_output=-1; it takes a whole number"),
        (lambda: L.Pooling(pool="MEAN"), "L.Pooling has pool='MEAN'; it takes one of MAX, AVE, STOCHASTIC"),
        (lambda: L.Pooling(pool=9), "L.Pooling has pool=9; it takes one of MAX, AVE, STOCHASTIC"),
        (lambda: L.Convolution(bias_term="no"), "L.Convolution has bias_term='no'; it takes a bool"),
        (lambda: L.Convolution(weight_filler="xavier"), "L.Convolution has weight_filler='xavier'; it takes a dict"),
        (lambda: L.Data(source=None), "L.Data has source=None; it takes a string"),
        (lambda: L.Data(source="x" * 99), None),
    ],
)
def test_a_wrong_field_or_value_is_refused_where_it_is_written(write, says):
    if says is None:
        write()
        return
    with pytest.raises(InputError) as refused:
        write()
    assert says in str(refused.value)
    assert (refused.value.path, refused.value.line) == (__file__, write.__code__.co_firstlineno)
