"""Items in batches."""

import numpy as np
import pytest

import layermem
from layermem.errors import InputError
from layermem.interactive.batching import batches_of, joined
from tests.nets import NETS, solver_file

CALLS = {
    "forward_all": lambda net, **arrays: net.forward_all(**arrays),
    "forward_backward_all": lambda net, **arrays: net.forward_backward_all(**arrays),
    "predict": lambda net, **arrays: net.predict(np.ones((5, 3))),
}


def test_the_last_batch_is_filled_up_with_zeros():
    items = np.arange(5.0)
    parts = [(batch["x"].tolist(), count) for batch, count in batches_of({"x": items}, {"x": 2})]
    assert parts == [([0, 1], 2), ([2, 3], 2), ([4, 0], 1)]
    assert joined([np.ones((2, 3)), np.zeros((1, 3))]).shape == (3, 3)


def test_inputs_that_do_not_go_together_are_refused():
    with pytest.raises(InputError, match="there are 3 of 'a' in batches of 2, 4 of 'b' in batches of 2"):
        list(batches_of({"a": np.ones(3), "b": np.ones(4)}, {"a": 2, "b": 2}))


@pytest.mark.parametrize("arrays", [{}, {"data": np.ones((5, 3))}], ids=["no arrays", "arrays"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_net_whose_data_layers_read_their_own_items_takes_none(tmp_path, call, arrays):
    nets = layermem.Net.from_text(NETS["chain"]), layermem.Solver(solver_file("chain", tmp_path)).net
    for net in nets:
        with pytest.raises(InputError, match=r"has no Input layer to give items to, .*; call net.forward\(\) for each"):
            call(net, **arrays)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_scalar_input_has_no_items(call):
    source = """layer { name: "x" type: "Input" top: "x" input_param { shape {} } }
                layer { name: "y" type: "Power" bottom: "x" top: "y" }"""
    with pytest.raises(InputError, match=r"input 'x' is a scalar, which has no items; use net.forward\(x=...\)"):
        call(layermem.Net.from_text(source), x=np.ones(5))
