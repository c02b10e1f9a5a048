"""Arrays to predict on."""

import zipfile

import numpy as np
import pytest

from layermem.data.array_items import is_array_file, read_array_items
from layermem.errors import InputError

ONE = {"data": (3, 2)}
TWO = {"data": (3, 2), "scale": (1,)}


def saved(path, **arrays):
    np.savez(path, **arrays) if path.suffix == ".npz" else np.save(path, arrays["x"])
    return str(path)


def test_items_lie_along_the_first_axis(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    path = saved(tmp_path / "x.npy", x=x)
    items = [*read_array_items(path, ONE)]
    assert [name for name, _ in items] == [f"{path}[{i}]" for i in range(4)]
    assert np.array_equal(items[2][1]["data"], x[2])
    ((name, arrays),) = read_array_items(saved(tmp_path / "one.npy", x=x[0]), ONE)
    assert name.endswith("one.npy") and np.array_equal(arrays["data"], x[0])


def test_an_npz_has_an_array_for_each_input(tmp_path):
    x = np.ones((2, 3, 2), np.float32)
    path = saved(tmp_path / "x.npz", scale=np.ones((2, 1)), data=x)
    assert [[*arrays] for _, arrays in read_array_items(path, TWO)] == [["data", "scale"]] * 2
    assert len([*read_array_items(saved(tmp_path / "y.npz", any=x), ONE)]) == 2


@pytest.mark.parametrize(
    ("arrays", "shapes", "match"),
    [
        ({"x": np.ones((2, 2, 3))}, ONE, "has 2x2x3 for the input 'data', which takes Nx3x2; reshape it"),
        ({"x": np.ones((0, 3, 2))}, ONE, "has no items; give at least one"),
        ({"x": np.array(["a"])}, ONE, "holds values of type <U1, and no numbers; give float32"),
        ({"x": np.ones((2, 3, 2))}, TWO, "has the arrays 'x', and the net the inputs 'data', 'scale'; give an .npz"),
        ({"data": np.ones((2, 3, 2)), "scale": np.ones((3, 1))}, TWO, "different numbers of items, 2 of 'data', 3 of"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, shapes, match):
    with pytest.raises(InputError, match=match):
        [*read_array_items(saved(tmp_path / "x.npz", **arrays), shapes)]


@pytest.mark.parametrize("content", [b"nonsense", b"PK\x03\x04damaged", b""])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as arrays"):
        [*read_array_items(str(tmp_path / "x.npz"), ONE)]


def test_endings():
    assert is_array_file("a.npy") and is_array_file("b.NPZ") and not is_array_file("c.png")


def test_a_member_of_an_archive_that_is_no_array_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x", b"hello")
    with pytest.raises(InputError, match=r"holds 'x', which is no array; write it with numpy.savez"):
        list(read_array_items(str(tmp_path / "x.npz"), {"x": (3,)}))
