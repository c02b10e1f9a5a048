"""Shapes of input layers whose files are absent, from prototxt."""

import pytest

from layermem.data.probing import probe
from layermem.errors import InputError
from layermem.layers.data import declared_shapes
from layermem.proto.schema import TRAIN
from tests.data.makers import layer

DATA = 'name: "data" type: "Data" top: "data" top: "label" data_param { source: "gone" batch_size: 2 backend: LMDB }'


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("transform_param { crop_size: 8 mean_value: 1 mean_value: 2 mean_value: 3 }", ((2, 3, 8, 8), (2,))),
        ("transform_param { crop_size: 8 force_color: true mean_value: 1 }", ((2, 3, 8, 8), (2,))),
        ("transform_param { crop_size: 8 force_gray: true }", ((2, 1, 8, 8), (2,))),
        ("transform_param { crop_size: 8 }", None),
        ("transform_param { crop_size: 8 mean_value: 1 }", None),
        ("transform_param { force_color: true }", None),
    ],
)
def test_a_data_set_that_is_not_there_has_the_shape_that_the_prototxt_states(text, shapes):
    param = layer(DATA + text)
    assert declared_shapes(param) == shapes
    if shapes:
        assert probe(param, TRAIN, "net.prototxt") == shapes
    else:
        with pytest.raises(InputError, match="there is no 'gone', and the prototxt does not state its shape"):
            probe(param, TRAIN, "net.prototxt")


def test_an_image_list_that_is_not_there_states_its_size_and_colour():
    text = 'name: "d" type: "ImageData" top: "data" image_data_param {{ source: "gone" batch_size: 2 {} }}'
    assert declared_shapes(layer(text.format("new_height: 4 new_width: 6"))) == ((2, 3, 4, 6),)
    assert declared_shapes(layer(text.format("new_height: 4 new_width: 6 is_color: false"))) == ((2, 1, 4, 6),)
    assert declared_shapes(layer(text.format("") + "transform_param { crop_size: 5 }")) == ((2, 3, 5, 5),)
    assert declared_shapes(layer(text.format(""))) is None
