"""Input layers: each has its own type, so that a device finds its kernel."""

import numpy as np
import pytest

from layermem.backends.reference.base import REGISTRY
from layermem.errors import InputError
from layermem.layers.data import FEED_LAYERS, FEEDS, make_feed_layer, shape_options
from layermem.ops import Tensor
from layermem.proto import schema
from tests.data.makers import write_mean


@pytest.mark.parametrize("kind", sorted(FEEDS))
def test_the_op_of_an_input_layer_has_a_kernel(kind):
    param = schema.LayerParameter(name="it", type=kind, top=["data"])
    param.input_param.shape.add(dim=[2, 3])
    param.dummy_data_param.shape.add(dim=[2, 3])
    param.memory_data_param.batch_size = param.memory_data_param.channels = 2
    param.memory_data_param.height = param.memory_data_param.width = 4
    param.top.extend(["label"] if kind == "MemoryData" else [])
    layer = make_feed_layer(param, 0, path="", batch=None, inputs={}, probe=lambda *_: [(2, 3)])
    assert layer.type == kind and REGISTRY.implements(layer.record, layer.forward().step)


def test_memory_data_of_opencl_caffe_states_a_shape_of_any_rank():
    param = schema.LayerParameter(name="it", type="MemoryData", top=["data", "label"])
    param.memory_data_param.dim.extend([2, 3, 4, 5, 6])
    assert [top.shape for top in made(param).tops] == [(2, 3, 4, 5, 6), (2,)]
    assert [top.shape for top in made(param, batch=7).tops] == [(7, 3, 4, 5, 6), (7,)]
    param.memory_data_param.height = 4
    with pytest.raises(InputError, match="states both dim and height in its memory_data_param; keep dim"):
        made(param)


def made(param, batch=None):
    return make_feed_layer(param, 0, path="", batch=batch, inputs={}, probe=None)


def data_layer(*tops):
    return schema.LayerParameter(name="it", type="Data", top=tops)


def no_file(*_):
    raise AssertionError("opened a file although all shapes are known")


def test_an_input_layer_states_the_shapes_that_are_given():
    param = schema.LayerParameter(name="it", type="Input", top=["data"], input_param={"shape": [{"dim": [2, 3, 4, 4]}]})
    layer = make_feed_layer(param, 0, path="", batch=None, inputs={"data": (1, 3, 5, 6)}, probe=None)
    assert layer.tops[0].shape == tuple(param.input_param.shape[0].dim) == (1, 3, 5, 6)


def test_given_shapes_stand_for_a_data_set_and_a_label_goes_with_its_images():
    param = data_layer("data", "label")
    layer = make_feed_layer(param, 0, path="", batch=None, inputs={"data": (8, 3, 5, 7)}, probe=no_file)
    assert [top.shape for top in layer.tops] == [(8, 3, 5, 7), (8,)]
    assert param.data_param.batch_size == 8


def test_a_top_without_a_stated_shape_takes_that_of_the_data_set():
    inputs = {"label": (4, 2)}
    layer = make_feed_layer(
        data_layer("data", "label"), 0, path="", batch=None, inputs=inputs, probe=lambda *_: [(4, 1, 8, 8), (4,)]
    )
    assert [top.shape for top in layer.tops] == [(4, 1, 8, 8), (4, 2)]


@pytest.mark.parametrize("batch", [0, -3, 2**31])
def test_a_batch_that_cannot_be_is_refused(batch):
    with pytest.raises(InputError, match="give a number from 1"):
        make_feed_layer(data_layer("data"), 0, path="", batch=batch, inputs={}, probe=no_file)


@pytest.mark.parametrize("kind", ["Data", "ImageData", "DenseImageData"])
def test_layers_of_stored_images_may_have_them_in_bytes(kind, tmp_path):
    shapes, mean = [(2, 3, 6, 5), (2,)], np.zeros((3, 8, 9), np.float32)
    param = schema.LayerParameter(name="it", type=kind, top=["data", "label"])

    def record():
        return make_feed_layer(
            param, 0, path=str(tmp_path / "net.prototxt"), batch=None, inputs={}, probe=lambda *_: shapes
        ).record

    assert (record().images, record().mean) == (Tensor(shapes[0]), None)
    param.transform_param.mean_file = "mean.binaryproto"
    assert record().images is None  # it is not there: the data cannot be read
    write_mean(tmp_path / "mean.binaryproto", mean)
    assert (record().images, record().mean) == (Tensor(shapes[0]), Tensor(mean.shape))


@pytest.mark.parametrize(
    ("kind", "fields", "options"),
    [
        (
            "Data",
            {"batch_size": 256, "crop_size": 227},
            "--input data=256,3,227,227 --input label=256 (3 channels, or 1 of gray images)",
        ),
        ("Data", {"batch_size": 8, "mean_value": [1, 2, 3]}, "--input data=8,3,H,W --input label=8"),
        ("Data", {}, "--input data=N,C,H,W --input label=N"),
        ("ImageData", {"batch_size": 2, "crop_size": 9}, "--input data=2,3,9,9 --input label=2"),
        ("HDF5Data", {"batch_size": 2}, "--input data=2,C,H,W --input label=2"),
    ],
)
def test_options_for_shapes_have_the_numbers_of_the_prototxt(kind, fields, options):
    param = schema.LayerParameter(name="it", type=kind, top=["data", "label"])
    for name, value in fields.items():
        if name == "batch_size":
            getattr(param, FEED_LAYERS[kind].param_block).batch_size = value
        elif isinstance(value, list):
            param.transform_param.mean_value.extend(value)
        else:
            setattr(param.transform_param, name, value)
    assert shape_options(param) == options
