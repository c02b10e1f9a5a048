"""Checks of a single layer."""

import pytest

from layermem.proto.checks import MAX_AXES, MAX_ELEMENTS, layer_fault, shape_fault
from layermem.proto.schema import LayerParameter


@pytest.mark.parametrize("dims", [(), (1,), (2, 3, 4, 5), (1,) * MAX_AXES, (MAX_ELEMENTS,)])
def test_shapes_of_blobs_pass(dims):
    assert shape_fault(dims) is None


@pytest.mark.parametrize(
    ("dims", "fault"),
    [
        ((2, 0), "shape 2 x 0: every extent must be at least 1"),
        ((-3,), "shape -3: every extent must be at least 1"),
        ((1,) * (MAX_AXES + 1), f"a shape of {MAX_AXES + 1} axes: a blob has at most {MAX_AXES}"),
        ((MAX_ELEMENTS, 2), f"that is {2 * MAX_ELEMENTS} elements, and a blob holds at most {MAX_ELEMENTS}"),
    ],
)
def test_shapes_that_no_blob_has_are_refused_with_the_reason(dims, fault):
    assert fault in shape_fault(dims)


def test_a_layer_needs_a_type():
    assert layer_fault(LayerParameter(name="a")) == 'has no type; add one, such as type: "Convolution"'
    assert layer_fault(LayerParameter(name="a", type="ReLU")) is None


def test_every_shape_that_a_layer_states_is_checked():
    layer = LayerParameter(name="a", type="Input")
    layer.input_param.shape.add(dim=[2, 3])
    layer.input_param.shape.add(dim=[2, 0])
    assert "shape 2 x 0" in layer_fault(layer)
    old = LayerParameter(name="a", type="DummyData")
    for field, value in (("num", 1), ("channels", 0), ("height", 1), ("width", 1)):
        getattr(old.dummy_data_param, field).append(value)
    assert "shape 1 x 0 x 1 x 1" in layer_fault(old)
    reshape = LayerParameter(name="a", type="Reshape")
    reshape.reshape_param.shape.dim.extend([0, -1])
    assert layer_fault(reshape) is None
