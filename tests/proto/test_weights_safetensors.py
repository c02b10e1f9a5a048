"""Weights in .safetensors files."""

import json

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto.weights import open_weights, read_weights, write_weights
from layermem.proto.weights_safetensors import open_safetensors
from layermem.utils.open_file import OpenFile

WEIGHTS = {
    "conv": ("Convolution", [np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2), np.ones(2, np.float32)]),
    "a/1x1": ("InnerProduct", [np.full((1, 3), 0.5, np.float32)]),
}


def file_of(path, header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)
    return path


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_weights_are_read_back_as_they_were_written(tmp_path):
    path = tmp_path / "w.safetensors"
    write_weights(path, "net", WEIGHTS)
    raw = path.read_bytes()
    assert (8 + int.from_bytes(raw[:8], "little")) % 8 == 0
    for weights in (read_weights(path), open_weights(path)):
        assert list(weights) == list(WEIGHTS)
        for name, (_, blobs) in WEIGHTS.items():
            for mine, theirs in zip(weights[name], blobs, strict=True):
                np.testing.assert_array_equal(np.asarray(mine), theirs)


def test_the_package_of_the_format_reads_our_files_and_we_read_its(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    write_weights(tmp_path / "ours.safetensors", "net", WEIGHTS)
    theirs = package.load_file(tmp_path / "ours.safetensors")
    np.testing.assert_array_equal(theirs["conv/0"], WEIGHTS["conv"][1][0])
    arrays = {"fc.weight": np.arange(6, dtype=np.float16).reshape(2, 3), "fc.bias": np.array([1, 2], np.int64)}
    package.save_file(arrays, tmp_path / "theirs.safetensors")
    read = read_weights(tmp_path / "theirs.safetensors")["fc"]
    assert [blob.tolist() for blob in read] == [[[0, 1, 2], [3, 4, 5]], [1, 2]]
    assert {blob.dtype for blob in read} == {np.dtype(np.float32)}


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    halves = np.array([1.5, -2], "<f4").view("<u4") >> 16
    path = file_of(tmp_path / "w.safetensors", {"w": entry("BF16", end=4)}, halves.astype("<u2").tobytes())
    assert np.asarray(open_safetensors(OpenFile(path, what="file"))["w"]).tolist() == [1.5, -2]


DAMAGED = [
    (b"", "is truncated, or is not a .safetensors file"),
    ({"w": entry(end=16)}, "has the tensor 'w' at bytes 0 to 16 of 8"),
    ({"w": entry(begin=4)}, "has 4 bytes for the tensor 'w' of F32, 2; copy it again"),
    ({"w": entry(shape=(3,))}, "has 8 bytes for the tensor 'w' of F32, 3"),
    ({"w": entry(), "v": entry()}, "has '[wv]', which overlaps '[wv]' in the file"),
    ({"w": entry(shape=(1,), end=4)}, "has 'the end of the file', which does not begin behind 'w'"),
    ({"w": entry(shape=(1,), begin=4)}, "has 'w', which does not begin behind the header"),
    ({"w": entry(shape=(-2,))}, "has a damaged entry for the tensor 'w'"),
    ({"w": entry(shape=(2.0,))}, "has a damaged entry"),
    ({"w": 3}, "has a damaged entry"),
    ({"\ud800": entry()}, r"has a damaged entry for the tensor '\\ud800'"),
    (b'{"w": NaN}', "its header is not JSON .NaN is no number"),
    (b'{"w": {}, "w": {}}', "a name stands twice"),
    (b"[" * 100000, "its header is not JSON"),
    (b"[1, 2]", "its header holds no tensors"),
    (b"\xff\xfe", "its header is not JSON"),
]


@pytest.mark.parametrize("header, what", DAMAGED)
def test_a_damaged_file_is_one_sentence(tmp_path, header, what):
    path = file_of(tmp_path / "w.safetensors", header, b"\0" * 8, 2**60 if header == b"" else None)
    with pytest.raises(InputError, match=what) as caught:
        open_safetensors(OpenFile(path, what="file"))
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "tensor, what",
    [
        (entry("F8_E4M3"), "type F8_E4M3, which is not read; store it as F32"),
        (entry(shape=(0,), end=0), "every extent must be at least 1"),
    ],
)
def test_a_tensor_that_is_no_blob_is_refused_when_it_is_read(tmp_path, tensor, what):
    path = file_of(tmp_path / "w.safetensors", {"w": tensor}, b"\0" * tensor["data_offsets"][1])
    tensors = open_safetensors(OpenFile(path, what="file"))
    with pytest.raises(InputError, match=what):
        np.asarray(tensors["w"])
