"""Input layers: each goes by its own type, so that a device finds its kernel."""

import pytest

from layermem.layers.data import FEEDS, make_feed_layer
from layermem.proto import schema
from layermem.runtime.reference.base import KERNELS


@pytest.mark.parametrize("kind", sorted(FEEDS))
def test_the_op_of_an_input_layer_has_a_kernel(kind):
    param = schema.LayerParameter(name="it", type=kind, top=["data"])
    param.input_param.shape.add(dim=[2, 3])
    param.dummy_data_param.shape.add(dim=[2, 3])
    param.memory_data_param.batch_size = param.memory_data_param.channels = 2
    param.memory_data_param.height = param.memory_data_param.width = 4
    param.top.extend(["label"] if kind == "MemoryData" else [])
    layer = make_feed_layer(param, 0, path="", batch=None, inputs={}, probe=lambda *_: [(2, 3)])
    assert layer.type == kind and f"{layer.type}.{layer.forward().step}" in KERNELS
