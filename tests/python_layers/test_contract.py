"""Blobs in methods of Python layers."""

import numpy as np
import pytest

from layermem import PythonLayer
from layermem.python_layers.contract import Blob, Blobs, ContractError


def test_a_blob_has_the_shape_and_the_four_axes_of_caffe():
    blob = Blob("bottom[0]", (2, 3))
    assert blob.shape == (2, 3) and blob.count == 6 and blob.data.shape == blob.diff.shape == (2, 3)
    assert (blob.num, blob.channels, blob.height, blob.width) == (2, 3, 1, 1)
    assert blob.data.dtype == np.float32 and not blob.data.any()
    with pytest.raises(ContractError, match="use its shape"):
        _ = Blob("top[0]", (1, 2, 3, 4, 5)).num


def test_a_top_takes_its_shape_from_reshape_and_a_bottom_keeps_its_own():
    top, bottom = Blob("top[0]", may_reshape=True), Blob("bottom[0]", (4,))
    assert top.shape == () and top.count == 0
    top.reshape(np.int64(2), 3)
    assert top.data.shape == (2, 3)
    top.reshape()
    assert top.shape == () and top.count == 1
    bottom.reshape(4)
    with pytest.raises(ContractError, match=r"reshapes bottom\[0\], which is not its own"):
        bottom.reshape(5)


@pytest.mark.parametrize("dims", [(2.0,), ("2",), ((2, 3),), (-1,)])
def test_sizes_that_are_none_are_refused(dims):
    with pytest.raises(ContractError, match=r"calls top\[0\].reshape"):
        Blob("top[0]", may_reshape=True).reshape(*dims)


def test_data_are_written_into_and_never_replaced():
    blob = Blob("top[0]", (2,))
    blob.data[...] = 1
    blob.data += 1
    blob.diff = blob.diff
    assert blob.data.tolist() == [2, 2]
    with pytest.raises(ContractError, match=r"write into it: top\[0\].data\[...\] = values"):
        blob.data = np.zeros(2)


def test_blobs_are_added_in_setup_alone():
    blobs = Blobs()
    blobs.add_blob(2, 3)
    blobs.add_blob(1)
    assert [blob.shape for blob in blobs] == [(2, 3), (1,)] and repr(blobs[0]) == "<blobs[0]: 2x3>"
    blobs.closed = True
    with pytest.raises(ContractError, match="after setup"):
        blobs.add_blob(1)


def test_the_base_class_takes_what_caffes_takes_and_requires_forward_and_backward():
    layer = PythonLayer("a LayerParameter")
    assert layer.type == "Python" and layer.recomputable is False and layer.setup([], []) is None
    for call in (lambda: layer.forward([], []), lambda: layer.backward([], [], [])):
        with pytest.raises(NotImplementedError, match="class PythonLayer has no"):
            call()
