"""Weights in .npz files."""

import io
import zipfile

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto.weights import open_weights, read_weights, write_weights
from layermem.proto.weights_npz import open_npz
from layermem.utils.open_file import OpenFile

WEIGHTS = {
    "conv": ("Convolution", [np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2), np.ones(2, np.float32)]),
    "file": ("InnerProduct", [np.full((1, 3), 0.5, np.float32)]),
}


def test_weights_are_read_back_as_they_were_written_and_by_numpy(tmp_path):
    path = tmp_path / "w.npz"
    write_weights(path, "net", WEIGHTS)
    for weights in (read_weights(path), open_weights(path)):
        assert list(weights) == list(WEIGHTS)
        for name, (_, blobs) in WEIGHTS.items():
            for mine, theirs in zip(weights[name], blobs, strict=True):
                np.testing.assert_array_equal(np.asarray(mine), theirs)
    with np.load(path) as file:
        assert sorted(file) == ["conv/0", "conv/1", "file/0"]
    first = path.read_bytes()
    write_weights(path, "net", WEIGHTS)
    assert path.read_bytes() == first  # no time of day


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_other_types_and_orders_become_floats(tmp_path, save):
    arrays = {"fc.weight": np.asfortranarray(np.arange(6).reshape(2, 3)), "fc.bias": np.array([0.5, 2], ">f8")}
    save(tmp_path / "w.npz", **arrays)
    read = read_weights(tmp_path / "w.npz")["fc"]
    assert [blob.tolist() for blob in read] == [[[0, 1, 2], [3, 4, 5]], [0.5, 2]]
    assert {blob.dtype for blob in read} == {np.dtype(np.float32)}


def archive(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, raw in members:
            file.writestr(name, raw)
    return path


def array(head, data=b""):
    raw = head.encode() + b" " * (118 - len(head) - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + data


HEAD = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"


def pickled():
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    "members, what",
    [
        ([("a/0.npy", b"junk")], "is truncated, or is not an .npz file"),
        ([("a/0.txt", b"x")], "holds 'a/0.txt', which is no array"),
        ([("a/0.npy", pickled())], "holds 'a/0' of type object; store numbers"),
        ([("a/0.npy", array(HEAD % "3,", b"\0" * 8))], "is truncated, or|holds 'a/0' with 136 bytes for"),
        ([("a/0.npy", array(HEAD % "2**99,"))], "is truncated, or"),
        ([("a/0.npy", array(HEAD % "99999999999,"))], "holds 'a/0' of shape 99999999999: that is"),
        ([("a/0.npy", array(HEAD % "99999999,"))], "holds 'a/0' with 128 bytes for 399,999,996"),
        ([("a/0.npy", array("(" * 90))], "is truncated, or is not an .npz file"),
        ([("a/0.npy", array(HEAD % "0,"))], "every extent must be at least 1"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, members, what):
    path = archive(tmp_path / "w.npz", *members)
    with pytest.raises(InputError, match=what) as caught:
        [np.asarray(blob) for blob in open_npz(OpenFile(path, what="file")).values()]
    assert caught.value.path == str(path)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "w.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(InputError, match=r"is truncated, or is not an \.npz file"):
        open_npz(OpenFile(tmp_path / "w.npz", what="file"))
