import contextlib
from itertools import pairwise

import h5py
import numpy as np
import pytest

from layermem.data import hdf5_source
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


ROWS = 24
LAYOUTS = {  # options of a dataset of 24 rows of 16 numbers, and the rows that are held without and with shuffle
    "contiguous": ({}, 0, 0),
    "rows": ({"chunks": (1, 16)}, 1, 0),
    "chunks": ({"chunks": (5, 7)}, 5, 0),
    "gzip": ({"chunks": (5, 16), "compression": "gzip"}, 5, 0),
    "one chunk": ({"chunks": (24, 16), "compression": "gzip"}, 24, 24),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "f8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_rows_are_stored_and_how_many_are_held_changes_none(tmp_path, monkeypatch, layout, dtype, shuffle):
    values = np.random.default_rng(0).normal(size=(ROWS, 16)) * 100
    values = (values % 200 if dtype == "u1" else values).astype(dtype)
    options, held, held_shuffled = LAYOUTS[layout]
    (tmp_path / "list.txt").write_text("a.h5\n")
    with h5py.File(tmp_path / "a.h5", "w") as h5:
        h5.create_dataset("data", data=values, **options)

    def stream():
        s = Hdf5Source(tmp_path / "list.txt", ("data",), KEY, shuffle=shuffle)
        return s, np.concatenate([s.read(count)[0] for count in (1, 7, 16, 30, 18)])

    whole, right = stream()
    assert whole.heads[0].block == ROWS and whole.held_bytes >= values.nbytes
    monkeypatch.setattr(hdf5_source, "HELD_BYTES", values[0].nbytes * 10)
    some, found = stream()
    assert some.heads[0].block == (held_shuffled if shuffle else held)
    assert np.array_equal(found, right) and (shuffle or np.array_equal(found[:ROWS], values.astype(np.float32)))


def test_what_is_held_of_a_large_file_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_source, "HELD_BYTES", 10_000)
    monkeypatch.setattr(hdf5_source, "CHUNK_CACHE_BYTES", 10_000)
    (tmp_path / "list.txt").write_text("a.h5\nb.h5\n")
    for name, options in (("a", {}), ("b", {"chunks": (50, 100)})):
        with h5py.File(tmp_path / f"{name}.h5", "w") as h5:
            h5.create_dataset("data", data=np.ones((200, 100), np.float32), **options)
    s = Hdf5Source(tmp_path / "list.txt", ("data",), KEY, shuffle=False)
    assert [head.held_bytes for head in s.heads] == [0, 3 * 50 * 400]  # the block, and its chunk twice
    assert s.held_bytes == 60_000


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
        ({"data": np.zeros((2, 3)), "label": np.zeros(3)}, "different lengths .2 of 'data', 3 of 'label'.;"),
        ({"data": np.zeros((0, 3)), "label": np.zeros(0)}, "an empty dataset 'data'; store"),
        ({"data": np.zeros((2, 3)), "label": np.array([b"a", b"b"])}, "store numbers"),
        ({"data": 3.0, "label": 1.0}, "has one number as 'data', and no rows; store an array"),
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
    with pytest.raises(InputError, match="is not UTF-8 text; save the list of HDF5 files"):
        source(tmp_path / "a.h5")
    (tmp_path / "a.h5").write_bytes(b"junk")
    with pytest.raises(InputError, match="is truncated, or is not a HDF5 file with data"):
        source(path)


def claim(path, name, **options):
    """An HDF5 file with a dataset of 4 GiB of which nothing is stored."""
    with h5py.File(path, "w") as h5:
        h5.create_dataset(name, (2**20, 1024), np.float32, **options)


def elsewhere(folder, kind: str, name: str = "data"):
    """The HDF5 file a.h5 whose dataset `name` has its numbers in another file."""
    write(folder, rows(0, 2), rows(0, 2))
    (folder / "raw").write_bytes(b"secret" * 100)
    with h5py.File(folder / "a.h5", "w") as h5:
        h5["label"] = np.zeros(2)
        if kind == "raw bytes":
            h5.create_dataset(name, (2, 3), "u1", external=[(str(folder / "raw"), 0, 6)])
        elif kind == "a link":
            h5[name] = h5py.ExternalLink("b.h5", "/data")
        else:
            layout = h5py.VirtualLayout((2, 2, 3), np.float64)
            layout[:] = h5py.VirtualSource(folder / "b.h5", "data", shape=(2, 2, 3))
            h5.create_virtual_dataset(name, layout)
    return folder / "a.h5"


@pytest.mark.parametrize("kind", ["raw bytes", "a link", "a virtual dataset"])
def test_numbers_in_another_file_are_not_read(tmp_path, kind):
    elsewhere(tmp_path, kind)
    (tmp_path / "list.txt").write_text("a.h5")
    with pytest.raises(InputError, match="whose numbers are in another file"):
        source(tmp_path / "list.txt")


@pytest.mark.parametrize("options", [{}, {"chunks": True}, {"chunks": True, "compression": "gzip"}])
def test_a_dataset_that_claims_far_more_than_is_stored_is_refused(tmp_path, options):
    (tmp_path / "list.txt").write_text("a.h5")
    claim(tmp_path / "a.h5", "data", **options)
    with pytest.raises(InputError, match=r"that claims 4\.00 GiB and stores almost none of it"):
        Hdf5Source(tmp_path / "list.txt", ("data",), KEY, shuffle=False)


def test_compressed_rows_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("layermem.proto.weights_hdf5.CLAIM_LIMIT_BYTES", 2**20)
    (tmp_path / "list.txt").write_text("a.h5")
    with h5py.File(tmp_path / "a.h5", "w") as h5:
        h5.create_dataset("data", data=np.zeros((2**12, 512), np.float32), compression="gzip", compression_opts=1)
    assert Hdf5Source(tmp_path / "list.txt", ("data",), KEY, shuffle=False).read(2)[0].shape == (2, 512)


def test_a_file_that_changes_during_the_run_is_refused(three, tmp_path):
    s = source(three)
    write(tmp_path, rows(0, 4), {"data": np.zeros((1, 7)), "label": np.zeros(1)}, rows(5, 3))
    three.write_text("a.h5\nb.h5\nc.h5\n")
    with pytest.raises(InputError, match="has changed since the net was made"):
        s.read(8)


def test_damaged_files_are_read_or_refused(tmp_path, rng):
    path = write(tmp_path, rows(0, 4))
    raw = (tmp_path / "a.h5").read_bytes()
    for _ in range(150):
        changed = bytearray(raw)
        for position in rng.integers(0, len(raw), 4):
            changed[position] = rng.integers(256)
        (tmp_path / "a.h5").write_bytes(changed)
        with contextlib.suppress(InputError):
            source(path).read(4)
