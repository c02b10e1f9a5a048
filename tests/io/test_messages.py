"""Messages as arrays, and back."""

import io

import numpy as np
import pytest
from PIL import Image

import layermem.io
from layermem.errors import InputError
from layermem.proto.schema import BlobProto, Datum


def test_a_blob_is_an_array_and_an_array_a_blob(rng):
    array = rng.standard_normal((2, 3, 1, 4)).astype(np.float32)
    blob = layermem.io.array_to_blobproto(array, diff=-array)
    assert list(blob.shape.dim) == [2, 3, 1, 4]
    again = BlobProto.FromString(blob.SerializeToString())
    assert np.array_equal(layermem.io.blobproto_to_array(again), array)
    assert np.array_equal(layermem.io.blobproto_to_array(again, return_diff=True), -array)


def test_a_blob_of_2014_has_four_extents_and_doubles_are_read():
    blob = BlobProto(num=1, channels=2, height=1, width=2, data=[1, 2, 3, 4])
    assert layermem.io.blobproto_to_array(blob).tolist() == [[[[1, 2]], [[3, 4]]]]
    assert layermem.io.blobproto_to_array(BlobProto(shape={"dim": [1]}, double_data=[0.1])).tolist() == [0.1]


def test_a_vector_of_blobs_is_bytes():
    arrays = [np.arange(3.0), np.ones((1, 2))]
    again = layermem.io.blobprotovector_str_to_arraylist(layermem.io.arraylist_to_blobprotovector_str(arrays))
    assert [each.tolist() for each in again] == [[0, 1, 2], [[1, 1]]]


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_a_datum_is_an_array_and_an_array_a_datum(dtype):
    array = np.arange(12).reshape(3, 2, 2).astype(dtype)
    datum = Datum.FromString(layermem.io.array_to_datum(array, 7).SerializeToString())
    assert (datum.label, bool(datum.data), len(datum.float_data)) == (
        (7, True, 0) if dtype == np.uint8 else (7, False, 12)
    )
    again = layermem.io.datum_to_array(datum)
    assert again.dtype == dtype and np.array_equal(again, array) and again.flags.writeable
    assert not layermem.io.array_to_datum(array).HasField("label")


def test_an_encoded_datum_is_decoded_blue_first():
    file = io.BytesIO()
    Image.new("RGB", (2, 1), (1, 2, 3)).save(file, "PNG")
    assert layermem.io.datum_to_array(Datum(encoded=True, data=file.getvalue())).tolist() == [
        [[3, 3]],
        [[2, 2]],
        [[1, 1]],
    ]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: layermem.io.blobproto_to_array(BlobProto(shape={"dim": [2, 2]}, data=[1])), "2x2 has 1 numbers"),
        (lambda: layermem.io.array_to_datum(np.ones((2, 2))), "an array of shape 2x2 is no Datum; give one of"),
        (lambda: layermem.io.array_to_blobproto(np.ones(2), np.ones(3)), "diff has shape 3, and data 2; give"),
    ],
)
def test_mismatched_input_is_refused(call, says):
    with pytest.raises(InputError) as refused:
        call()
    assert says in str(refused.value)
