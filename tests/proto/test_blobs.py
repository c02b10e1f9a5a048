"""BlobProto messages as arrays."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto import read_blob, read_weights, reshaped, write_weights
from layermem.proto.schema import BlobProto

RNG = np.random.default_rng(7)
WEIGHTS = {
    "conv1": ("Convolution", [RNG.normal(size=(4, 3, 5, 5)), RNG.normal(size=4)]),
    "relu1": ("ReLU", []),
    "inception_3a/1x1": ("Convolution", [RNG.normal(size=(2, 4, 1, 1))]),
    "scalar": ("Parameter", [np.array(1.5)]),
    "bn": ("BatchNorm", [np.zeros(4), np.ones(4), np.array([3.0])]),
}
WEIGHTS = {name: (kind, [np.float32(blob) for blob in blobs]) for name, (kind, blobs) in WEIGHTS.items()}


def same(read, written):
    written = {name: blobs for name, (_, blobs) in written.items() if blobs}
    assert set(read) == set(written)
    for name, blobs in written.items():
        assert [blob.shape for blob in read[name]] == [np.shape(blob) for blob in blobs]
        for got, want in zip(read[name], blobs, strict=True):
            assert got.dtype == np.float32 and got.tobytes() == np.ascontiguousarray(want, np.float32).tobytes()


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_weights(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    return caught.value


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def delimited(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def net_bytes(data_fields, shape=(2, 2)):
    """A .caffemodel of one layer 'ip' whose blob has the data given as raw wire bytes."""
    blob = b"".join(data_fields) + delimited(7, delimited(1, b"".join(varint(dim) for dim in shape)))
    layer = delimited(1, b"ip") + delimited(2, b"InnerProduct") + delimited(7, blob)
    return delimited(1, b"net") + delimited(100, layer)


FOUR = np.float32([1, -2, 3.5, 1e-30])
UNPACKED = [b"\x2d" + number.tobytes() for number in FOUR]  # field 5, wire type 5
WIRE = {
    "one packed run": [delimited(5, FOUR.tobytes())],
    "two packed runs": [delimited(5, FOUR[:1].tobytes()), delimited(5, FOUR[1:].tobytes())],
    "unpacked": UNPACKED,
    "packed, then unpacked": [delimited(5, FOUR[:3].tobytes()), UNPACKED[3]],
    "doubles": [delimited(8, np.float64(FOUR).tobytes())],
    "unpacked doubles": [b"\x41" + np.float64(number).tobytes() for number in FOUR],
    "doubles beside floats": [delimited(5, b"\0" * 16), delimited(8, np.float64(FOUR).tobytes())],
    "gradients too": [delimited(6, b"\0" * 16), delimited(5, FOUR.tobytes())],
}


@pytest.mark.parametrize("case", WIRE)
def test_floats_are_read_however_a_writer_lays_them_out(case, tmp_path):
    path = tmp_path / "w.caffemodel"
    path.write_bytes(net_bytes(WIRE[case]))
    same(read_weights(path), {"ip": ("InnerProduct", [FOUR.reshape(2, 2)])})


IN_IP = "layer 'ip' has a blob of shape"


@pytest.mark.parametrize(
    "fields, shape, sentence",
    [
        ([delimited(5, b"\0" * 12)], (2, 2), f"{IN_IP} 2 x 2 with 3 numbers; the file is damaged"),
        (UNPACKED, (5,), "layer 'ip' has a blob of shape 5 with 4 numbers; the file is damaged"),
        ([], (1,), "layer 'ip' has a blob of shape 1 with 0 numbers; the file is damaged"),
        (
            [delimited(5, b"\0" * 13)],
            (2, 2),
            "is truncated, or is not a weight file (.caffemodel or .caffemodel.h5); copy it again",
        ),
        ([delimited(5, b"\0" * 4)], (2**64 - 1,), f"{IN_IP} -1 with 1 numbers; the file is damaged"),
    ],
)
def test_a_blob_that_does_not_fill_its_shape_is_refused(fields, shape, sentence, tmp_path):
    path = tmp_path / "w.caffemodel"
    path.write_bytes(net_bytes(fields, shape))
    assert str(refusal(path)) == f"{path}: {sentence}"


def old_blob(*extents, start=0.0):
    num, channels, height, width = extents
    blob = BlobProto(num=num, channels=channels, height=height, width=width)
    blob.data.extend(start + i for i in range(num * channels * height * width))
    return blob


@pytest.mark.parametrize(
    "have, want", [((2, 3), (3, 2)), ((2, 3), (6,)), ((1, 2, 3), (2, 3)), ((1, 1, 2, 3), (1, 2, 3, 1))]
)
def test_another_shape_is_refused_even_of_equal_count(have, want):
    with pytest.raises(InputError) as caught:
        reshaped(np.zeros(have, np.float32), want)
    assert " x ".join(map(str, have)) in str(caught.value)


def test_a_mean_image_is_read_in_its_shape_old_or_new(tmp_path):
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(old_blob(1, 3, 2, 2).SerializeToString())
    assert read_blob(path).shape == (1, 3, 2, 2) and read_blob(path)[0, 2, 1, 1] == 11
    blob = BlobProto(data=[1.0, 2.0])
    blob.shape.dim.extend([2])
    path.write_bytes(blob.SerializeToString())
    assert read_blob(path).tolist() == [1, 2]
    write_weights(path, "n", WEIGHTS)
    with pytest.raises(InputError, match="is not a binaryproto"):
        read_blob(path)
    with pytest.raises(InputError, match="no such file; give an existing binaryproto"):
        read_blob(tmp_path / "no")
