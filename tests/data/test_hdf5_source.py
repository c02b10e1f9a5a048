from itertools import pairwise

import h5py
import numpy as np
import pytest

from layermem.data.hdf5_source import Hdf5Source
from layermem.errors import InputError

KEY = (1, 0, "data")


def write(folder, *files: dict) -> object:
    """HDF5 files a.h5, b.h5, ... and the list that names them."""
    names = []
    for letter, datasets in zip("abc", files):
        names.append(f"{letter}.h5")
        with h5py.File(folder / names[-1], "w") as h5:
            for name, values in datasets.items():
                h5[name] = values
    (folder / "list.txt").write_text("\n".join(names) + "\n")
    return folder / "list.txt"


def rows(first: int, count: int) -> dict:
    """`count` rows of 'data' [2,3] and 'label', numbered from `first`."""
    number = np.arange(first, first + count)
    return {"data": np.repeat(number.astype(np.float64), 6).reshape(count, 2, 3), "label": number}


@pytest.fixture
def three(tmp_path):
    return write(tmp_path, rows(0, 4), rows(4, 1), rows(5, 3))


def source(path, shuffle: bool = False) -> Hdf5Source:
    return Hdf5Source(path, ("data", "label"), KEY, shuffle=shuffle)


def test_each_top_is_the_dataset_of_its_name(three):
    s = source(three)
    assert s.row_shapes == ((2, 3), ()) and s.length == 8
    data, label = s.read(11)
    assert data.shape == (11, 2, 3) and data.dtype == label.dtype == np.float32
    assert label.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2]
    assert np.array_equal(data[:, 1, 2], label)


def test_a_shuffled_pass_visits_every_row_once_and_keeps_rows_together(three):
    s = source(three, shuffle=True)
    passes = []
    for _ in range(8):
        data, label = s.read(8)
        assert sorted(label) == list(range(8)) and np.array_equal(data[:, 0, 0], label)
        passes.append(tuple(label))
    assert len(set(passes)) == 8


def test_a_shuffled_pass_reads_each_file_once(three):
    label = source(three, shuffle=True).read(8)[1]
    files = [0 if n < 4 else 1 if n == 4 else 2 for n in label]
    changes = sum(a != b for a, b in pairwise(files))
    assert changes == 2


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("taken", [0, 3, 8, 21])
def test_a_restored_source_goes_on_where_the_state_was_taken(three, shuffle, taken):
    s = source(three, shuffle)
    s.read(taken)
    state = s.state()
    expected = s.read(13)
    resumed = source(three, shuffle)
    resumed.read(2)
    resumed.restore(state)
    for a, b in zip(resumed.read(13), expected):
        assert np.array_equal(a, b)


def test_batches_of_any_size_are_the_same_stream(three):
    whole = source(three, True).read(20)[1]
    s = source(three, True)
    assert np.array_equal(np.concatenate([s.read(n)[1] for n in (1, 7, 3, 9)]), whole)


@pytest.mark.parametrize(
    ("datasets", "words"),
    [
        ({"data": np.zeros((2, 3))}, "no dataset 'label' .*datasets: data"),
        (
            {"data": np.zeros((2, 3)), "label": np.zeros(3)},
            "different lengths .2 of 'data', 3 of 'label'.;",
        ),
        ({"data": np.zeros((0, 3)), "label": np.zeros(0)}, "an empty dataset 'data'; store"),
        ({"data": np.zeros((2, 3)), "label": np.array([b"a", b"b"])}, "store numbers"),
        ({"data": 3.0, "label": 1.0}, "an empty dataset"),
    ],
)
def test_datasets_that_are_no_rows_are_refused(tmp_path, datasets, words):
    with pytest.raises(InputError, match=words) as caught:
        source(write(tmp_path, datasets))
    assert caught.value.path == str(tmp_path / "a.h5")


def test_files_of_different_rows_are_refused(tmp_path):
    path = write(tmp_path, rows(0, 2), {"data": np.zeros((2, 4)), "label": np.zeros(2)})
    with pytest.raises(InputError, match="the first file of ") as caught:
        source(path)
    assert caught.value.path == str(tmp_path / "b.h5")


def test_a_file_that_is_missing_is_named_with_its_line(tmp_path):
    path = write(tmp_path, rows(0, 2))
    path.write_text("a.h5\n\ngone.h5\n")
    with pytest.raises(InputError, match=r"there is no 'gone.h5'") as caught:
        source(path)
    assert caught.value.line == 3


def test_lists_that_are_none_are_refused(tmp_path):
    (tmp_path / "list.txt").write_text("\n")
    with pytest.raises(InputError, match="lists no HDF5 files"):
        source(tmp_path / "list.txt")
    path = write(tmp_path, rows(0, 2))
    with pytest.raises(InputError, match="is not text; the source of HDF5Data is a text file"):
        source(tmp_path / "a.h5")
    (tmp_path / "a.h5").write_bytes(b"junk")
    with pytest.raises(InputError, match="is not an HDF5 file, or is damaged"):
        source(path)
