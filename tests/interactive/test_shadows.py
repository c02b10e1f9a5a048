"""Parameters as arrays: views of the arena, and arrays outside of it."""

import numpy as np
import pytest

import layermem
from layermem.interactive.shadows import Shadows

IP = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: [2, 3, 2, 2] } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
                inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }"""


@pytest.fixture
def runner():
    with layermem.Net.from_text(IP) as net:
        net.forward()
        yield net._runner()


def test_a_buffer_in_caffes_order_is_a_view(runner):
    shadows = Shadows()
    shadows.array(runner, "ip.w1", (2,))[:] = [3, 4]
    assert runner.read("ip.w1").tolist() == [3, 4]


def test_another_is_written_back_and_read_again_as_long_as_it_is_used(runner):
    shadows = Shadows()
    array = shadows.array(runner, "ip.w0", (2, 12))
    array[:] = np.arange(24).reshape(2, 12)
    shadows.flush(runner)
    assert runner.read("ip.w0").ravel().tolist() == list(range(24))
    runner.write("ip.w0", np.ones(24))
    shadows.refresh(runner)
    assert (array == 1).all()
    shadows.array(runner, "ip.w0", (2, 12))[...] = 5  # an array that nothing keeps
    del array
    shadows.flush(runner)
    assert (runner.read("ip.w0") == 5).all()
    runner.write("ip.w0", np.zeros(24))
    shadows.flush(runner)
    assert not runner.read("ip.w0").any()
