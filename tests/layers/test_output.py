"""HDF5Output: its op, its memory, and refusals."""

import pytest

from layermem.errors import InputError
from tests.layers.harness import layer_of

TEXT = 'type: "HDF5Output" hdf5_output_param { file_name: "out.h5" }'


def test_it_runs_no_op_on_a_device_and_keeps_nothing():
    it = layer_of(TEXT, (2, 3), (2,))
    assert it.tops == () and it.stash == {} and it.file_name == "out.h5"
    assert (it.forward().reads, it.forward().writes) == ((), ()) and it.backward(("dx0",)) == ()


@pytest.mark.parametrize(
    "text, shapes, remedy",
    [
        ('type: "HDF5Output"', [(2, 3), (2,)], "set it in its hdf5_output_param"),
        (TEXT, [(2, 3), (3,)], "give both one batch size"),
        (TEXT, [(), ()], "give both one batch size"),
        (TEXT, [(2, 3)], "has 1 bottom; HDF5Output takes 2"),
    ],
)
def test_an_impossible_output_file_is_refused_with_a_remedy(text, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer_of(text, *shapes)
