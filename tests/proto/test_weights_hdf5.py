"""Weights in HDF5 files."""

import h5py
import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto import read_weights, write_weights
from tests.data.test_hdf5_source import elsewhere

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


def test_an_hdf5_file_has_a_group_for_each_layer_and_a_float_dataset_for_each_blob(tmp_path):
    path = tmp_path / "net.caffemodel.h5"
    write_weights(path, "lenet", WEIGHTS)
    with h5py.File(path) as file:
        assert list(file) == ["data"]
        assert file["data/conv1/0"].shape == (4, 3, 5, 5) and file["data/conv1/1"].dtype == np.float32
        assert len(file["data/relu1"]) == 0
        assert file["data/inception_3a/1x1/0"].shape == (2, 4, 1, 1)


def saved(tmp_path, raw):
    path = tmp_path / "wrong.caffemodel"
    path.write_bytes(raw)
    return path


def hdf5_with(path, **datasets):
    with h5py.File(path, "w") as file:
        for name, value in datasets.items():
            file[name.replace("__", "/")] = value
    return path


def test_hdf5_files_that_hold_no_weights_are_called_what_they_are(tmp_path):
    path = tmp_path / "x.h5"
    assert refusal(hdf5_with(path, data=np.zeros(3), label=np.zeros(3))).what.startswith("has no group 'data'")
    assert "has an unexpected dataset 'data/ip/kernel'" in refusal(hdf5_with(path, data__ip__kernel=np.zeros(3))).what
    assert "has an unexpected dataset 'data/0'" in refusal(hdf5_with(path, data__0=np.zeros(3))).what
    assert "has an unexpected dataset 'data/ip/0'" in refusal(hdf5_with(path, data__ip__0="text")).what
    shared = refusal(hdf5_with(path, data__ip__1=np.zeros(3)))
    assert shared.layer == "ip" and shared.what.startswith("has no blob 0 of 2")
    whole = tmp_path / "net.caffemodel.h5"
    write_weights(whole, "n", WEIGHTS)
    for keep in (9, 100, len(whole.read_bytes()) - 50):
        assert "is truncated" in refusal(saved(tmp_path, whole.read_bytes()[:keep])).what


def test_hdf5_numbers_of_other_types_are_read_as_float32_and_gradients_are_left_alone(tmp_path):
    path = hdf5_with(tmp_path / "x.h5", data__ip__0=np.arange(3), data__ip__1=np.float64([0.1]), diff__ip__0=np.ones(3))
    same(read_weights(path), {"ip": ("", [np.float32([0, 1, 2]), np.float32([0.1])])})


@pytest.mark.parametrize("name", ["", "/a", "a//b", "a/", ".", "a/..", "a\0b"])
def test_names_that_hdf5_cannot_hold_are_refused(name, tmp_path):
    path = tmp_path / "n.caffemodel.h5"
    with pytest.raises(InputError, match="HDF5 does not allow"):
        write_weights(path, "n", {name: ("ReLU", [])})
    assert not path.exists()


@pytest.mark.parametrize("name", ["a/1", "a/1/b"])
def test_a_layer_named_as_a_blob_of_another_is_refused_in_hdf5(name, tmp_path):
    path = tmp_path / "n.caffemodel.h5"
    layers = {name: ("X", [np.zeros(1)]), "a": ("X", [np.zeros(1)])}
    write_weights(path, "n", layers)
    same(read_weights(path), layers)
    with pytest.raises(InputError, match=f"layer '{name}' has the name of a blob of layer 'a'"):
        write_weights(path, "n", {name: ("X", [np.zeros(1)]), "a": ("X", [np.zeros(1), np.zeros(2)])})


def test_a_blob_without_a_shape_or_with_a_huge_number_is_refused(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["data/ip/0"] = h5py.Empty("f4")
    assert refusal(path).what == "has a blob 0 without a shape; store numbers"
    assert (
        "has no blob 1 of 1000000"
        in refusal(hdf5_with(path, data__ip__0=np.zeros(2), data__ip__999999=np.zeros(2))).what
    )
    assert "has an unexpected dataset" in refusal(hdf5_with(path, data__ip__1000000000=np.zeros(2))).what
    assert "has an unexpected dataset" in refusal(hdf5_with(path, **{"data__ip__²": np.zeros(2)})).what


def test_a_blob_that_claims_far_more_than_is_stored_is_refused(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data/ip/0", (2**20, 1024), np.float32, chunks=True)
    assert "that claims 4.00 GiB and stores almost none of it" in refusal(path).what


@pytest.mark.parametrize("kind", ["raw bytes", "a link", "a virtual dataset"])
def test_numbers_in_another_file_are_not_read(tmp_path, kind):
    path = elsewhere(tmp_path, kind, "data/ip/0")
    with h5py.File(path, "a") as file:
        del file["label"]
    if kind == "a link":  # links to other files are not followed
        assert read_weights(path) == {}
    else:
        assert "whose numbers are in another file" in refusal(path).what
